//go:build !linux

package stdio

import (
	"errors"
	"os"
	"slices"
	"time"

	"github.com/shirou/gopsutil/v4/process"
)

// look samples the processes of the tree.
func (t *tree) look(*os.File) ([]sample, error) {
	pids, err := t.processes()
	if err != nil {
		return nil, err
	}
	var all []sample
	for _, pid := range pids {
		p := &process.Process{Pid: int32(pid)}
		times, err := p.Times()
		if err != nil {
			if there, known := process.PidExists(p.Pid); known == nil && !there {
				continue
			}
			return nil, err
		}
		s := sample{pid: pid, cpu: time.Duration((times.User + times.System) * float64(time.Second))}
		// What a system does not tell of counts as nothing: macOS knows only
		// what went to disk and came from there, Windows all.
		if io, err := p.IOCounters(); err == nil {
			s.io = io.ReadBytes + io.WriteBytes + io.DiskReadBytes + io.DiskWriteBytes
		}
		if status, err := p.Status(); err == nil {
			s.ended = slices.Contains(status, process.Zombie)
			s.stopped = slices.Contains(status, process.Stop)
		}
		if began, err := p.CreateTime(); err == nil {
			s.began = time.UnixMilli(began)
		}
		all = append(all, s)
	}
	if len(all) == 0 {
		return nil, errors.New("no process of the tree is there")
	}
	return all, nil
}
