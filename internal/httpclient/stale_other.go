//go:build !linux && !darwin

package httpclient

import "net"

// stale would report that a connection has ended without anybody's notice.
func stale(net.Conn) bool { return false }
