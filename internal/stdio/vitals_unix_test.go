//go:build unix

package stdio

import (
	"syscall"
	"testing"

	"github.com/holdfast-mcp/holdfast/internal/liveness"
)

func TestVitalsOfStopped(t *testing.T) {
	p := startHelperProcess(t, helperCommand(t, "beside", "spin"), ProcessOptions{})
	child := atoi(t, readLine(t, p.Stdout()))
	if v := look(t, p); v.Stopped {
		t.Fatalf("stopped before it is: %+v", v)
	}
	if err := syscall.Kill(child, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	until(t, p, "stopped", func(v liveness.Vitals) bool { return v.Stopped })
	if err := syscall.Kill(child, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	until(t, p, "continued", func(v liveness.Vitals) bool { return !v.Stopped })
}
