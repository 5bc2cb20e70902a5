package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// serve is a small MCP server on stdin and stdout, of the handshake era. Its one
// tool takes its time; what it does is counted in a file, across processes.
func serve(in io.Reader, out io.Writer, countFile string) error {
	s := &server{out: out, file: countFile, cancels: map[string]chan struct{}{}}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var m request
		if json.Unmarshal(lines.Bytes(), &m) == nil {
			s.take(m)
		}
	}
	return lines.Err()
}

type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		ProtocolVersion string          `json:"protocolVersion"`
		Arguments       work            `json:"arguments"`
		RequestID       json.RawMessage `json:"requestId"`
		Meta            struct {
			ProgressToken json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	} `json:"params"`
}

// work is what the tool is asked for.
type work struct {
	Key   string `json:"key"`
	MS    int    `json:"ms"`    // until the answer
	Every int    `json:"every"` // milliseconds between reports of progress; 0: silent
	Die   int    `json:"die"`   // milliseconds until the process ends; 0: it does not
}

type server struct {
	out  io.Writer
	file string

	mu      sync.Mutex // guards out and the field below
	cancels map[string]chan struct{}
}

func (s *server) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, format+"\n", args...)
}

func (s *server) take(m request) {
	switch {
	case m.Method == "notifications/cancelled":
		s.mu.Lock()
		if c := s.cancels[string(m.Params.RequestID)]; c != nil {
			close(c)
			delete(s.cancels, string(m.Params.RequestID))
		}
		s.mu.Unlock()
	case m.ID == nil:
	case m.Method == "initialize":
		s.say(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":%q,"capabilities":{"tools":{}},"serverInfo":{"name":"slow","version":"1"}}}`,
			m.ID, m.Params.ProtocolVersion)
	case m.Method == "ping":
		s.say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID)
	case m.Method == "tools/list":
		s.say(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"work","inputSchema":{"type":"object"}}]}}`, m.ID)
	case m.Method == "tools/call":
		c := make(chan struct{})
		s.mu.Lock()
		s.cancels[string(m.ID)] = c
		s.mu.Unlock()
		go s.work(m, c) // ends by itself, at the latest with the process
	default:
		s.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"unknown method"}}`, m.ID)
	}
}

func (s *server) work(m request, cancelled <-chan struct{}) {
	a := m.Params.Arguments
	s.count("start", a.Key)
	begin := time.Now()
	done := time.After(time.Duration(a.MS) * time.Millisecond)
	var die, tick <-chan time.Time
	if a.Die > 0 {
		die = time.After(time.Duration(a.Die) * time.Millisecond)
	}
	if a.Every > 0 && m.Params.Meta.ProgressToken != nil {
		ticker := time.NewTicker(time.Duration(a.Every) * time.Millisecond)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		select {
		case <-cancelled:
			s.count("cancel", a.Key)
			return
		case <-die:
			os.Exit(3)
		case <-tick:
			s.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"total":%d}}`,
				m.Params.Meta.ProgressToken, time.Since(begin).Milliseconds(), a.MS)
		case <-done:
			s.count("end", a.Key)
			s.say(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%q}]}}`, m.ID, "done "+a.Key)
			return
		}
	}
}

// count appends a line that outlives the process.
func (s *server) count(what, key string) {
	f, err := os.OpenFile(s.file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	fmt.Fprintf(f, "%s %s\n", what, key)
	f.Close()
}

// counts is how often something was begun, finished and cancelled.
type counts struct{ start, end, cancel int }

// readCounts sums up what servers counted for one key.
func readCounts(file, key string) (c counts, err error) {
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		return c, err
	}
	for line := range strings.Lines(string(text)) {
		switch what, k, _ := strings.Cut(strings.TrimSpace(line), " "); {
		case k != key:
		case what == "start":
			c.start++
		case what == "end":
			c.end++
		case what == "cancel":
			c.cancel++
		}
	}
	return c, nil
}
