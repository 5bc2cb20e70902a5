//go:build unix

package cli_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/demo"
)

// childMain is an MCP server for the scripts, which first does as told:
//
//	child report FILE         tells FILE its folder, arguments and environment
//	child tree FILE           starts a stubborn child, tells FILE both process ids
//	child late STATUS TEXT    after a second writes TEXT to stderr and ends
//	child banner              writes a line to stdout that is no message
//	child mute FILE           tells FILE its process id, and never answers
//	child hang                no server: outlives all signals that it can
func childMain(args []string) int {
	switch args[0] {
	case "report":
		wd, err := os.Getwd()
		if err != nil {
			return complain(err)
		}
		lines := append([]string{"cwd=" + wd, "args=" + strings.Join(args[2:], " ")}, os.Environ()...)
		if err := publish(args[1], strings.Join(lines, "\n")+"\n"); err != nil {
			return complain(err)
		}
	case "tree":
		cmd := exec.Command(os.Args[0], "hang")
		if err := cmd.Start(); err != nil {
			return complain(err)
		}
		if err := publish(args[1], fmt.Sprintf("%d %d\n", os.Getpid(), cmd.Process.Pid)); err != nil {
			return complain(err)
		}
	case "late":
		<-time.After(time.Second)
		status, err := strconv.Atoi(args[1])
		if err != nil {
			return complain(err)
		}
		fmt.Fprintln(os.Stderr, strings.Join(args[2:], " "))
		return status
	case "banner":
		fmt.Println("Welcome to the server!")
	case "mute":
		if err := publish(args[1], strconv.Itoa(os.Getpid())+"\n"); err != nil {
			return complain(err)
		}
		_, _ = io.Copy(io.Discard, os.Stdin)
		return 0
	case "hang":
		signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		<-time.After(5 * time.Minute) // for when a test leaves it behind
		return 0
	default:
		return complain(fmt.Errorf("unknown command %q", args[0]))
	}
	if err := demo.Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
		return complain(err)
	}
	return 0
}

// publish writes a file so that whoever waits for it sees all of it.
func publish(name, content string) error {
	if err := os.WriteFile(name+".part", []byte(content), 0o600); err != nil {
		return err
	}
	return os.Rename(name+".part", name)
}

func complain(err error) int {
	fmt.Fprintln(os.Stderr, "child:", err)
	return 70
}
