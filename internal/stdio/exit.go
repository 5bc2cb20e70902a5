package stdio

import "fmt"

// ExitError says how the leader of a child ended. It is an error for code 0
// too, since a server is not supposed to end by itself.
type ExitError struct {
	// Name and PID say which child it was.
	Name string
	PID  int
	// Code is the exit status, -1 if a signal ended the process.
	Code int
	// Signal names the signal that ended the process ("killed"), else empty.
	Signal string
	// Stderr is the end of what the child wrote to stderr.
	Stderr string
}

// Error says how the process ended in words that follow its name: "exited with
// status 17", "killed by signal: terminated". It leaves Stderr to the caller.
func (e *ExitError) Error() string {
	switch {
	case e.Signal != "":
		return "killed by signal: " + e.Signal
	case e.Code < 0:
		return "did not end when it was killed"
	default:
		return fmt.Sprintf("exited with status %d", e.Code)
	}
}

func (p *Process) describeExit(ended bool) *ExitError {
	e := &ExitError{Name: p.name, PID: p.PID(), Code: -1, Stderr: p.stderr.tail()}
	if ended {
		e.Code = p.cmd.ProcessState.ExitCode()
		e.Signal = exitSignal(p.cmd.ProcessState)
	}
	return e
}
