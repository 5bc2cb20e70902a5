package stdio

import (
	"bytes"
	"errors"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	psnet "github.com/shirou/gopsutil/v4/net"
	"github.com/shirou/gopsutil/v4/process"
	"golang.org/x/sys/unix"
)

// clockTick is the unit of times in /proc/PID/stat, the same on all
// architectures that Go runs on.
const clockTick = time.Second / 100

// look samples the group and all descendants of the leader, which may have left
// the group. gopsutil would read each process's files several times over, and
// tells neither what was used by children that have ended nor, more exactly
// than to the second, when a process began: so /proc/PID/stat is read here.
func (t *tree) look(stdin *os.File) ([]sample, error) {
	leader := t.watch.pgid
	var boot unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot); err != nil {
		return nil, err
	}
	now := time.Now()
	procs, err := processTable()
	if err != nil {
		return nil, err
	}
	input := pipeName(stdin)
	var all []sample
	for _, p := range procs {
		if !p.below(leader, procs) {
			continue
		}
		s := sample{pid: p.pid, cpu: p.cpu, ended: p.ended(), stopped: p.state == 'T' || p.state == 't', runs: p.state == 'R'}
		if !s.ended {
			age := max(time.Duration(boot.Nano())-p.start, 0)
			s.began = now.Add(-age)
			s.io, err = bytesMoved(p.pid)
			if gone(err) {
				continue
			} else if err != nil {
				return nil, err
			}
			if s.waits = waitOf(p.pid, p.pid, readsFrom(p.pid, input)); p.state == 'D' {
				s.waits = "a file system or device"
			}
		}
		all = append(all, s)
	}
	return all, nil
}

// below reports whether the process is of the leader's group or descends from it.
func (p procStat) below(leader int, procs map[int]procStat) bool {
	for range len(procs) { // the table may have changed while it was read, into a circle even
		if p.pid == leader || p.group == leader {
			return true
		}
		parent, ok := procs[p.parent]
		if !ok {
			return false
		}
		p = parent
	}
	return false
}

// bytesMoved counts what a process and its reaped children read and wrote by
// read(2), write(2) and their like, whatever the file: proc_pid_io(5), rchar
// and wchar. What goes by send(2) and recv(2) is not counted there.
func bytesMoved(pid int) (uint64, error) {
	io, err := (&process.Process{Pid: int32(pid)}).IOCounters()
	if err != nil {
		return 0, err
	}
	return io.ReadBytes + io.WriteBytes, nil
}

func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

// pipeName is what the links of /proc/PID/fd call the pipe, whichever its end.
func pipeName(f *os.File) string {
	info, err := f.Stat()
	if err != nil {
		return "" // closed: the child is being ended
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return "pipe:[" + strconv.FormatUint(stat.Ino, 10) + "]"
}

// readsFrom reports whether the pipe is the process's standard input.
func readsFrom(pid int, pipe string) bool {
	target, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/fd/0")
	return err == nil && target == pipe
}

// waitOf says what a thread waits for, "" if that is not plain. The first
// thread of a process is where a server without threads runs its handlers, and
// it says something when that server reads no ping meanwhile. A sleep counts
// only for who reads our messages: a script may sleep beside its server.
func waitOf(pid, tid int, reader bool) string {
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/task/" + strconv.Itoa(tid) + "/syscall")
	if err != nil {
		return ""
	}
	switch call, fd := parseSyscall(string(line)); call {
	case sleeps:
		if reader {
			return "its own timer"
		}
	case receives:
		return remoteOf(pid, func(c psnet.ConnectionStat) bool { return int(c.Fd) == fd })
	case polls:
		// Which descriptor it is stands in its memory, where we do not look.
		return remoteOf(pid, func(psnet.ConnectionStat) bool { return true })
	}
	return ""
}

// waiting is a kind of system call.
type waiting int

const (
	other    waiting = iota
	sleeps           // until a time
	receives         // on one descriptor
	polls            // for one descriptor, it is not known which
)

// parseSyscall reads what stands in /proc/PID/syscall: number and arguments of
// the call that blocks, proc_pid_syscall(5).
func parseSyscall(line string) (call waiting, fd int) {
	fields := strings.Fields(line)
	if len(fields) < 3 {
		return other, 0 // "running", or blocked but in no system call
	}
	number, err := strconv.Atoi(fields[0])
	if err != nil {
		return other, 0
	}
	argument := func(i int) int {
		n, err := strconv.ParseUint(strings.TrimPrefix(fields[i], "0x"), 16, 64)
		if err != nil {
			return -1
		}
		return int(int32(n))
	}
	switch number {
	case unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP:
		return sleeps, 0
	case unix.SYS_READ, unix.SYS_RECVFROM, unix.SYS_RECVMSG, unix.SYS_CONNECT:
		return receives, argument(1)
	case sysPoll, unix.SYS_PPOLL:
		if argument(2) == 1 {
			return polls, 0
		}
	}
	return other, 0
}

// remoteOf names the other end of the first connection that fits.
func remoteOf(pid int, fits func(psnet.ConnectionStat) bool) string {
	connections, err := psnet.ConnectionsPid("inet", int32(pid))
	if err != nil {
		return ""
	}
	for _, c := range connections {
		if c.Raddr.Port == 0 || !fits(c) {
			continue
		}
		remote := net.JoinHostPort(c.Raddr.IP, strconv.FormatUint(uint64(c.Raddr.Port), 10))
		switch {
		case c.Status == "SYN_SENT":
			return "a connection to " + remote
		case c.Status == "ESTABLISHED", c.Type == unix.SOCK_DGRAM:
			return "a reply from " + remote
		}
	}
	return ""
}

// procStat is what of /proc/PID/stat is of use.
type procStat struct {
	pid, parent, group int
	state              byte
	cpu                time.Duration // its own and that of its reaped children
	start              time.Duration // since the system booted
}

func (p procStat) ended() bool { return p.state == 'Z' || p.state == 'X' }

// processTable reads the state of every process.
func processTable() (map[int]procStat, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	all := make(map[int]procStat, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		line, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // it ended meanwhile
		}
		if p, ok := parseStat(line); ok {
			p.pid = pid
			all[pid] = p
		}
	}
	return all, nil
}

// parseStat reads /proc/PID/stat, proc_pid_stat(5), but for the process id. All
// follows the name in parentheses, which may hold anything, parentheses too.
func parseStat(line []byte) (p procStat, ok bool) {
	const (
		parent, group             = 1, 2
		userTime, childSystemTime = 11, 14
		startTime                 = 19
	)
	fields := bytes.Fields(line[bytes.LastIndexByte(line, ')')+1:])
	if len(fields) <= startTime || len(fields[0]) != 1 {
		return p, false
	}
	number := func(i int) int64 {
		n, err := strconv.ParseInt(string(fields[i]), 10, 64)
		if err != nil {
			ok = false
		}
		return n
	}
	ok = true
	p.state = fields[0][0]
	p.parent, p.group = int(number(parent)), int(number(group))
	for i := userTime; i <= childSystemTime; i++ {
		p.cpu += time.Duration(number(i)) * clockTick
	}
	p.start = time.Duration(number(startTime)) * clockTick
	return p, ok
}
