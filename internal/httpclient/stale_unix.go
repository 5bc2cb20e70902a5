//go:build linux || darwin

package httpclient

import (
	"net"
	"syscall"
)

// stale reports whether a connection that nothing is expected on has something
// to be read all the same: its end, or what a server says before it closes one.
// The goroutine that reads it may not have come to it yet.
func stale(conn net.Conn) bool {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	quiet := true
	err = raw.Control(func(fd uintptr) { // Read would wait for the goroutine that reads
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		quiet = err == syscall.EAGAIN || err == syscall.EINTR
	})
	return err == nil && !quiet
}
