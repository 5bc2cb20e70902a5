package stdio

import (
	"os"
	"syscall"
	"testing"
)

func TestOnlyZombies(t *testing.T) {
	if onlyZombies(syscall.Getpgrp()) {
		t.Error("we are no zombie")
	}
	// Killed and not reaped.
	p, err := os.StartProcess("/bin/sh", []string{"sh", "-c", "kill -9 $$"}, &os.ProcAttr{Sys: &syscall.SysProcAttr{Setpgid: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Wait()
	within(t, slack, "the process is a zombie", func() bool { return onlyZombies(p.Pid) })
	if w := (groupWatch{pgid: p.Pid}); w.gone() {
		t.Error("the first look has gone through the process table")
	} else {
		within(t, slack, "a group of zombies counts as gone", w.gone)
	}
}
