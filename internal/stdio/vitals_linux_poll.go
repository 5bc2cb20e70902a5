//go:build linux && !(arm64 || loong64 || riscv64)

package stdio

import "golang.org/x/sys/unix"

const sysPoll = unix.SYS_POLL
