//go:build unix

package stdio

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func helperSystem(name string, args []string) int {
	switch name {
	case "stubborn": // ignores the end of stdin and SIGTERM
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		fmt.Println(os.Getpid())
		<-time.After(helperLife)
		return 0
	case "raise": // SIGNAL
		sig, _ := strconv.Atoi(args[0])
		syscall.Kill(os.Getpid(), syscall.Signal(sig))
		<-time.After(helperLife)
		return 0
	case "flags": // which of its standard streams do not block
		for fd := range 3 {
			flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
			fmt.Println(fd, flags&unix.O_NONBLOCK != 0, err)
		}
		return 0
	case "burn": // uses a tenth of a second of CPU
		var used unix.Rusage
		for used.Utime.Nano()+used.Stime.Nano() < int64(100*time.Millisecond) {
			unix.Getrusage(unix.RUSAGE_SELF, &used)
		}
		return 0
	case "leave": // group|session PROGRAM: starts it with its own streams, then ends
		cmd := exec.Command(os.Args[0], append([]string{helperMark}, args[1:]...)...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: args[0] == "session"}
		fmt.Fprintln(os.Stderr, "leaving")
		if err := cmd.Start(); err != nil {
			return 1
		}
		return 3
	case "companion":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		return RunCompanion(os.Stdin)
	case "record": // FILE: a companion that only writes down what it is told
		return helperRecord(args[0])
	case "gateway": // a process that holds a companion and a child, says who, and stays
		return helperGateway()
	default:
		return 2
	}
}

func helperRecord(path string) int {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return 1
	}
	fmt.Fprintf(f, "pid %d\n", os.Getpid())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Fprintln(f, in.Text())
	}
	fmt.Fprintln(f, "end")
	return 0
}

func helperGateway() int {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	c, err := StartCompanion([]string{os.Args[0], helperMark, "companion"}, log)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	script := fmt.Sprintf("'%s' %s stubborn & wait", os.Args[0], helperMark)
	p, err := StartProcess(Command{Path: "sh", Args: []string{"-c", script}}, ProcessOptions{Companion: c, Logger: log})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	grandchild, err := bufio.NewReader(p.Stdout()).ReadString('\n')
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Printf("%d %s", p.PID(), grandchild)
	<-time.After(helperLife)
	return 0
}

// shellCommand runs a script with the test binary as $0 and helperMark as $1.
func shellCommand(t *testing.T, script string) Command {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Command{Path: "sh", Args: []string{"-c", script, exe, helperMark}}
}

func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// processGone reports whether a process, of whatever parent, has ended.
func processGone(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	i := strings.LastIndex(string(stat), ") ")
	return i > 0 && strings.HasPrefix(string(stat)[i+2:], "Z")
}

// within fails the test unless the condition comes true in time.
func within(t *testing.T, d time.Duration, what string, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	for !cond() {
		select {
		case <-ctx.Done():
			t.Fatalf("not within %v: %s", d, what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
