//go:build unix && !linux

package stdio

import (
	"syscall"

	"github.com/shirou/gopsutil/v4/process"
)

// processes lists the group.
func (t *tree) processes() (group []int, err error) {
	pids, err := process.Pids()
	if err != nil {
		return nil, err
	}
	for _, pid := range pids {
		if pgid, err := syscall.Getpgid(int(pid)); err == nil && pgid == t.watch.pgid {
			group = append(group, int(pid))
		}
	}
	return group, nil
}
