package stdio

import (
	"os"

	"golang.org/x/sys/unix"
)

// growPipe lets a large message pass in one go. Without it each 64 KiB cost a
// switch to the child and back. Failing is fine: the pipe works at any size.
func growPipe(f *os.File) {
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, 256<<10) })
	}
}
