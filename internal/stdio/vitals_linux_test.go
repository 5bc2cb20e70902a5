package stdio

import (
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-mcp/holdfast/internal/liveness"
)

func TestParseStat(t *testing.T) {
	const rest = " 39 0 -1 4194304 5 6 7 8 100 20 3 4 20 0 11 0 2500 9 9"
	whole := procStat{parent: 1, group: 40, state: 'S', cpu: 1270 * time.Millisecond, start: 25 * time.Second}
	tests := []struct {
		stat string
		want procStat
		ok   bool
	}{
		{"42 (node) S 1 40" + rest, whole, true},
		{"42 (a) Z 9 (b c)) S 1 40" + rest, whole, true},
		{"42 (node) S 1 40 39 0 -1", procStat{}, false},
		{"42 (node) S 1 x" + rest, procStat{}, false},
		{"42 (node) SS 1 40" + rest, procStat{}, false},
		{"junk", procStat{}, false},
		{"", procStat{}, false},
	}
	for _, tt := range tests {
		if got, ok := parseStat([]byte(tt.stat)); ok != tt.ok || ok && got != tt.want {
			t.Errorf("%q: got %+v, %t", tt.stat, got, ok)
		}
	}
}

func TestParseSyscall(t *testing.T) {
	call := func(n int, args ...int) string {
		var line strings.Builder
		fmt.Fprint(&line, n)
		for _, a := range args {
			fmt.Fprintf(&line, " %#x", a)
		}
		return line.String() + " 0x7ffe 0x7f57\n"
	}
	tests := []struct {
		line string
		want waiting
		fd   int
	}{
		{call(unix.SYS_CLOCK_NANOSLEEP, 0, 0), sleeps, 0},
		{call(unix.SYS_RECVFROM, 7, 100), receives, 7},
		{call(unix.SYS_PPOLL, 0x1000, 1), polls, 0},
		{call(unix.SYS_PPOLL, 0x1000, 2), other, 0},
		{call(unix.SYS_FUTEX, 7, 0), other, 0},
		{"running\n", other, 0},
		{"-1 0x7ffe 0x7f57\n", other, 0},
		{"x 0x7ffe 0x7f57\n", other, 0},
		{"", other, 0},
	}
	for _, tt := range tests {
		if got, fd := parseSyscall(tt.line); got != tt.want || fd != tt.fd {
			t.Errorf("%q: got %d %d", tt.line, got, fd)
		}
	}
	if got, fd := parseSyscall(fmt.Sprint(unix.SYS_READ, " x 0 0\n")); got != receives || fd != -1 {
		t.Errorf("junk for a descriptor: got %d %d", got, fd)
	}
}

func TestBelow(t *testing.T) {
	procs := map[int]procStat{}
	for _, p := range []procStat{
		{pid: 1, group: 1}, {pid: 10, parent: 1, group: 10}, {pid: 11, parent: 10, group: 10}, {pid: 12, parent: 11, group: 12},
		{pid: 13, parent: 1, group: 10}, {pid: 20, parent: 1, group: 20}, {pid: 30, parent: 31}, {pid: 31, parent: 30},
	} {
		procs[p.pid] = p
	}
	for pid, want := range map[int]bool{1: false, 10: true, 11: true, 12: true, 13: true, 20: false, 30: false, 31: false} {
		if got := procs[pid].below(10, procs); got != want {
			t.Errorf("%d is below 10: %t", pid, got)
		}
	}
}

// Pipes count, not only disks.
func TestVitalsOfIO(t *testing.T) {
	p := startHelperProcess(t, helperCommand(t, "echo"), ProcessOptions{})
	const size = 1000
	p.Stdin().WriteString("x\n")
	readLine(t, p.Stdout())
	was := look(t, p)
	p.Stdin().WriteString(strings.Repeat("x", size))
	if _, err := io.ReadFull(p.Stdout(), make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	// A Go program wakes itself through an eventfd now and then.
	if v := look(t, p); v.IO-was.IO < 2*size || v.IO-was.IO > 3*size {
		t.Errorf("%d bytes of I/O, in and out are %d", v.IO-was.IO, 2*size)
	}
	still := look(t, p) // on a busy machine it may come to rest a little later
	until(t, p, "without I/O for a while, since it waits", func(v liveness.Vitals) bool {
		if v.IO != still.IO {
			still = v
		}
		return v.At.Sub(still.At) > 100*time.Millisecond
	})
}

// What processes used that ended and were waited for is not lost.
func TestVitalsOfEndedChildren(t *testing.T) {
	p := startHelperProcess(t, shellCommand(t, `read go; "$0" "$1" burn; read end`), ProcessOptions{})
	was := look(t, p)
	p.Stdin().WriteString("go\n")
	v := until(t, p, "one process with the CPU of its child", func(v liveness.Vitals) bool {
		return v.Procs == 1 && v.CPU-was.CPU >= 50*time.Millisecond
	})
	if v.IO <= was.IO {
		t.Errorf("the child's I/O is lost: %d, %d before", v.IO, was.IO)
	}
}

func TestVitalsOfRunnable(t *testing.T) {
	busy := startHelperProcess(t, shellCommand(t, "echo; while :; do :; done"), ProcessOptions{StopTimeout: time.Second})
	idle := startHelperProcess(t, shellCommand(t, "echo; read end"), ProcessOptions{})
	readLine(t, busy.Stdout())
	readLine(t, idle.Stdout())
	for range 10 {
		if v := look(t, busy); !v.Runnable {
			t.Errorf("a process that works: %+v", v)
		}
	}
	until(t, idle, "seen to wait", func(v liveness.Vitals) bool { return !v.Runnable })
}

func TestVitalsOfSleeper(t *testing.T) {
	p := startHelperProcess(t, shellCommand(t, "exec sleep 60"), ProcessOptions{StopTimeout: time.Second})
	until(t, p, "seen to sleep", func(v liveness.Vitals) bool { return v.Waits == "its own timer" })
	beside := startHelperProcess(t, shellCommand(t, "sleep 60 </dev/null; :"), ProcessOptions{StopTimeout: time.Second})
	v := until(t, beside, "with a child", func(v liveness.Vitals) bool { return v.Children == 1 })
	if v.Waits != "" {
		t.Errorf("another's sleep counts: %+v", v)
	}
}

func TestWaitForReply(t *testing.T) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	address := listener.Addr().(*net.TCPAddr)
	tid, done := make(chan int, 1), make(chan error, 1)
	go func() { // ends when the other side of its connection is closed
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		tid <- unix.Gettid()
		done <- receiveFrom(address.Port)
	}()
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	thread, want := <-tid, "a reply from "+address.String()
	within(t, slack, want, func() bool { return waitOf(os.Getpid(), thread, false) == want })
	conn.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := waitOf(os.Getpid(), 1<<30, false); got != "" {
		t.Errorf("a thread that does not exist waits for %q", got)
	}
}

// receiveFrom blocks its thread until the end of a connection.
func receiveFrom(port int) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	_, _, err = unix.Recvfrom(fd, make([]byte, 1), 0)
	return err
}
