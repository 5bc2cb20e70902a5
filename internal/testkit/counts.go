package testkit

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
)

// Counts says how often something was begun, finished and cancelled.
type Counts struct {
	Start  int `json:"start"`
	End    int `json:"end"`
	Cancel int `json:"cancel"`
}

type countKind string

const (
	countStart  countKind = "start"
	countEnd    countKind = "end"
	countCancel countKind = "cancel"
)

func (c *Counts) add(kind countKind) {
	switch kind {
	case countStart:
		c.Start++
	case countEnd:
		c.End++
	case countCancel:
		c.Cancel++
	}
}

// counts are those of one server, by key. Those of tools also go to a file,
// which outlives the process.
type counts struct {
	file string

	mu    sync.Mutex // guards byKey
	byKey map[string]*Counts
}

func newCounts(file string) *counts { return &counts{file: file, byKey: map[string]*Counts{}} }

func (c *counts) add(key string, kind countKind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byKey[key] == nil {
		c.byKey[key] = &Counts{}
	}
	c.byKey[key].add(kind)
}

func (c *counts) get(key string) Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.byKey[key]; n != nil {
		return *n
	}
	return Counts{}
}

// effect counts what a tool does to the world, in the file too.
func (c *counts) effect(key string, kind countKind) error {
	c.add(key, kind)
	if c.file == "" {
		return nil
	}
	f, err := os.OpenFile(c.file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("testkit: count: %w", err)
	}
	_, err = fmt.Fprintf(f, "%s %d %q\n", kind, os.Getpid(), key)
	return errors.Join(err, f.Close())
}

// ReadCounts reads what servers with this Options.CountFile have counted under
// key, however many processes they were. No file means nothing counted.
func ReadCounts(file, key string) (Counts, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return Counts{}, nil
	}
	if err != nil {
		return Counts{}, fmt.Errorf("testkit: counts: %w", err)
	}
	defer func() { _ = f.Close() }()
	var sum Counts
	suffix := fmt.Sprintf(" %q", key)
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		kind, rest, _ := strings.Cut(lines.Text(), " ")
		if strings.HasSuffix(rest, suffix) && !strings.Contains(strings.TrimSuffix(rest, suffix), `"`) {
			sum.add(countKind(kind))
		}
	}
	return sum, lines.Err()
}
