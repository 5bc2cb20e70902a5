// Package ledger is what the servers write down for others to ask after.
package ledger

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Ledger is the name of a file in which all processes of a server write down what befell
// which call: those of one client may go to several processes.
type Ledger string

// Add appends a line.
func (l Ledger) Add(what, tag string) error {
	f, err := os.OpenFile(string(l), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("open ledger: %w", err)
	}
	if _, err = fmt.Fprintln(f, what, tag); err == nil {
		return f.Close()
	}
	_ = f.Close() // the first error says more
	return fmt.Errorf("write ledger: %w", err)
}

// Count tells how many such lines there are.
func (l Ledger) Count(what, tag string) (string, error) {
	b, err := os.ReadFile(string(l))
	if err != nil && !os.IsNotExist(err) {
		return "", fmt.Errorf("read ledger: %w", err)
	}
	n := 0
	for line := range strings.Lines(string(b)) {
		if line == what+" "+tag+"\n" {
			n++
		}
	}
	return strconv.Itoa(n), nil
}
