package stdio

import (
	"os"
	"syscall"
	"testing"
)

func TestParseStat(t *testing.T) {
	tests := []struct {
		stat  string
		state byte
		pgid  int
	}{
		{"42 (node) S 1 40 39 0 -1", 'S', 40},
		{"42 (a) Z 9 (b c)) Z 1 41 39 0", 'Z', 41},
		{"42 (node) S 1", 0, 0},
		{"42 (node) S 1 x 3", 0, 0},
		{"42 (node) SS 1 2 3", 0, 0},
		{"junk", 0, 0},
		{"", 0, 0},
	}
	for _, tt := range tests {
		if state, pgid := parseStat([]byte(tt.stat)); state != tt.state || pgid != tt.pgid {
			t.Errorf("%q: got %q %d", tt.stat, state, pgid)
		}
	}
}

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
