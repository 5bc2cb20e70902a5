//go:build !unix

package stdio

import (
	"io"
	"log/slog"
)

// Companion does nothing here: on Windows the job object of each child ends it
// with this process.
type Companion struct{}

// StartCompanion starts nothing.
func StartCompanion([]string, *slog.Logger) (*Companion, error) { return &Companion{}, nil }

// Watch does nothing.
func (c *Companion) Watch(int) {}

// Forget does nothing.
func (c *Companion) Forget(int) {}

// Close does nothing.
func (c *Companion) Close() {}

// RunCompanion reads r to its end and returns the exit status 0.
func RunCompanion(r io.Reader) int {
	io.Copy(io.Discard, r)
	return 0
}
