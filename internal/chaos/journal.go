package chaos

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
)

// Mark is what is noted of an execution.
type Mark string

// The marks.
const (
	Began     Mark = "began"
	Ended     Mark = "ended"
	Cancelled Mark = "cancelled"
)

// Note takes a mark of the execution of the call with a nonce. It is called by
// several goroutines at once.
type Note func(m Mark, nonce string)

// Executions is how often the server executed a call.
type Executions struct{ Began, Ended, Cancelled int }

// Running is how many executions have not come to an end.
func (e Executions) Running() int { return e.Began - e.Ended - e.Cancelled }

// Journal is the servers' own account of what they have executed. The zero
// value is empty. Safe for concurrent use.
type Journal struct {
	mu    sync.Mutex // guards the field below
	calls map[string]Executions
}

// Note is a Note.
func (j *Journal) Note(m Mark, nonce string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.calls == nil {
		j.calls = map[string]Executions{}
	}
	e := j.calls[nonce]
	switch m {
	case Began:
		e.Began++
	case Ended:
		e.Ended++
	case Cancelled:
		e.Cancelled++
	}
	j.calls[nonce] = e
}

// All returns the executions by nonce.
func (j *Journal) All() (map[string]Executions, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := make(map[string]Executions, len(j.calls))
	maps.Copy(all, j.calls)
	return all, nil
}

// File is a journal in a file, for servers that are processes of their own.
type File string

// Note returns a Note that appends to the file, and lives as long as the
// process. A mark that cannot be written is a panic: the account would be wrong.
func (f File) Note() (Note, error) {
	out, err := os.OpenFile(string(f), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("chaos: journal: %w", err)
	}
	return func(m Mark, nonce string) {
		if _, err := fmt.Fprintf(out, "%s %s\n", m, nonce); err != nil { // one write, so that lines stay whole
			panic(fmt.Errorf("chaos: journal: %w", err))
		}
	}, nil
}

// All returns the executions by nonce.
func (f File) All() (map[string]Executions, error) {
	in, err := os.Open(string(f))
	if err != nil {
		return nil, fmt.Errorf("chaos: journal: %w", err)
	}
	defer func() { _ = in.Close() }()
	var j Journal
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		mark, nonce, _ := strings.Cut(lines.Text(), " ")
		j.Note(Mark(mark), nonce)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("chaos: journal: %w", err)
	}
	return j.All()
}
