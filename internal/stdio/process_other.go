//go:build !unix && !windows

package stdio

import (
	"os"
	"os/exec"
)

// tree is the leader alone where the system has no groups of processes.
type tree struct {
	proc *os.Process
}

func startTree(cmd *exec.Cmd) (*tree, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &tree{proc: cmd.Process}, nil
}

func (t *tree) id() int    { return 0 }
func (t *tree) terminate() { t.proc.Signal(os.Interrupt) }
func (t *tree) kill()      { t.proc.Kill() }
func (t *tree) gone() bool { return true }
func (t *tree) release()   {}

// processes lists the leader.
func (t *tree) processes() ([]int, error) { return []int{t.proc.Pid}, nil }

func exitSignal(*os.ProcessState) string { return "" }

func envKey(key string) string { return key }
