//go:build unix

package stdio

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// HungUp reports whether nobody reads any more what is written to a pipe or a
// socket. It is found out without writing, and false where that cannot be.
func HungUp(c syscall.Conn) bool {
	rc, err := c.SyscallConn()
	if err != nil {
		return false
	}
	gone := false
	err = rc.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(fds, 0)
		gone = err == nil && n > 0 && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
	})
	return err == nil && gone
}
