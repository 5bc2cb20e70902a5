package stdio

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// helperMark as first argument makes the test binary one of the programs below.
const helperMark = "stdio-test-helper"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == helperMark {
		os.Exit(helperMain(os.Args[2], os.Args[3:]))
	}
	// Else each program built with the race detector waits a second before it
	// ends.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// helper is the command that runs one of the programs.
func helperCommand(t testing.TB, name string, args ...string) Command {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Command{Path: exe, Args: append([]string{helperMark, name}, args...), Name: name}
}

// helperLife ends a program that a failed test left behind.
const helperLife = time.Minute

// slack is what a busy machine may add to a bound: far less than helperLife,
// which is what a wait without bound takes.
const slack = 10 * time.Second

func helperMain(name string, args []string) int {
	switch name {
	case "exit": // CODE [STDERR]
		fmt.Fprint(os.Stderr, strings.Join(args[1:], " "))
		code, _ := strconv.Atoi(args[0])
		return code
	case "echo":
		io.Copy(os.Stdout, os.Stdin)
		return 0
	case "reply": // one line of output, then the end
		fmt.Println(strings.Join(args, " "))
		return 0
	case "env":
		fmt.Println(strings.Join(os.Environ(), "\n"))
		return 0
	case "flood": // BYTES: so many on stderr without a newline, then a line
		n, _ := strconv.Atoi(args[0])
		if _, err := io.Copy(os.Stderr, strings.NewReader(strings.Repeat("x", n))); err != nil {
			return 1
		}
		fmt.Println("flooded")
		io.Copy(io.Discard, os.Stdin)
		return 0
	case "deaf": // ignores the end of stdin
		fmt.Println(os.Getpid())
		<-time.After(helperLife)
		return 0
	case "spin": // uses CPU
		fmt.Println(os.Getpid())
		for end := time.Now().Add(helperLife); time.Now().Before(end); {
		}
		return 0
	case "beside": // PROGRAM: runs it as a child with the same streams
		child := exec.Command(os.Args[0], helperMark, args[0])
		child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
		if err := child.Run(); err != nil {
			return 1
		}
		return 0
	default:
		return helperSystem(name, args)
	}
}

// startHelperProcess starts a program and sees to its end.
func startHelperProcess(t *testing.T, c Command, opts ProcessOptions) *Process {
	t.Helper()
	p, err := StartProcess(c, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.KillGroup()
		p.Stop()
	})
	return p
}

// readLine reads one line of a child's stdout within a bounded time.
func readLine(t *testing.T, f *os.File) string {
	t.Helper()
	if err := f.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(io.LimitReader(f, 1<<10)).ReadString('\n')
	if err != nil {
		t.Fatalf("read a line: %q, %v", line, err)
	}
	return strings.TrimSpace(line)
}

// awaitClosed fails the test unless the channel is closed in time.
func awaitClosed(t *testing.T, d time.Duration, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(d):
		t.Fatalf("not within %v: %s", d, what)
	}
}
