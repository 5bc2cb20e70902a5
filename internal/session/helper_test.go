package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast/eventlog"
	"github.com/holdfast-mcp/holdfast/internal/conversation"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

func message(t testing.TB, format string, args ...any) *jsonrpc.Message {
	t.Helper()
	m, err := jsonrpc.Parse(fmt.Appendf(nil, format, args...))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func note(n int) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/x","params":{"n":%d}}`, n)
}

// registry is one with everything that a session needs.
func registry(o RegistryOptions) *Registry {
	if o.Max == 0 {
		o.Max = 100
	}
	if o.Timeout == 0 {
		o.Timeout = time.Hour
	}
	if o.Grace == 0 {
		o.Grace = time.Minute
	}
	o.Log = slog.New(slog.DiscardHandler)
	return NewRegistry(o)
}

// open returns a session that has its conversation.
func open(t testing.TB, r *Registry, single bool) (*Session, *server) {
	t.Helper()
	s, err := r.New(single)
	if err != nil {
		t.Fatal(err)
	}
	conv := &server{}
	if err := s.Attach(conv, conv.leave); err != nil {
		t.Fatal(err)
	}
	return s, conv
}

// server stands for the conversation of one session.
type server struct {
	mu     sync.Mutex // guards the fields below
	calls  []*conversation.Call
	sent   []string // the requests
	heard  []string // methods of notifications, and replies
	gaveUp []string // ids of cancelled calls
	left   []string // the reasons
	fail   error    // of Call
}

func (s *server) Call(call *conversation.Call, m *jsonrpc.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return s.fail
	}
	s.calls, s.sent = append(s.calls, call), append(s.sent, string(m.Bytes()))
	return nil
}

func (s *server) Notify(_ conversation.Peer, m *jsonrpc.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = append(s.heard, string(m.Text(jsonrpc.Method)))
	return nil
}

func (s *server) Reply(_ conversation.Peer, m *jsonrpc.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = append(s.heard, "reply "+string(m.Raw(jsonrpc.ID)))
}

func (s *server) Cancel(call *conversation.Call, _ *jsonrpc.Message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gaveUp = append(s.gaveUp, string(call.ID))
	return true
}

func (s *server) leave(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = append(s.left, reason)
}

// last is the latest call.
func (s *server) last(t testing.TB) *conversation.Call {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.calls) == 0 {
		t.Fatal("no call has reached the server")
	}
	return s.calls[len(s.calls)-1]
}

// ask makes the session take a request, and returns its stream and the call.
func ask(t testing.TB, s *Session, conv *server, id string) (*Stream, *conversation.Call) {
	t.Helper()
	st := s.Post(1, true)
	s.Take(st, message(t, `{"jsonrpc":"2.0","id":%s,"method":"tools/call"}`, id))
	return st, conv.last(t)
}

func answer(call *conversation.Call) {
	call.Peer.Answer(call, jsonrpc.AppendResult(nil, call.ID, []byte("{}")))
}

// lines is what a stream holds, without confirming it.
func lines(st *Stream) (out []string) {
	events, _, _ := st.log.Read(nil, 0, 1<<30)
	for _, e := range events {
		out = append(out, string(e.Data))
	}
	return out
}

// errorOf returns code, text and data of an error answer.
func errorOf(t testing.TB, line string) (code int, text, data string) {
	t.Helper()
	var m struct {
		Error *struct {
			Code    int
			Message string
			Data    json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(line), &m); err != nil || m.Error == nil {
		t.Fatalf("no error answer: %s", line)
	}
	return m.Error.Code, m.Error.Message, string(m.Error.Data)
}

// plainText writes "seq data" a line, "~" for a heartbeat.
type plainText struct{}

func (plainText) Event(dst []byte, _ *Stream, e eventlog.Event) []byte {
	return fmt.Appendf(dst, "%d %s\n", e.Seq, e.Data)
}

func (plainText) Heartbeat(dst []byte) []byte { return append(dst, "~\n"...) }

var errGone = errors.New("output: gone")

// output is a connection in memory.
type output struct {
	wake chan struct{}
	gone context.CancelFunc
	ctx  context.Context

	mu   sync.Mutex // guards the fields below
	buf  bytes.Buffer
	fail error
	slow time.Duration
}

func newOutput() *output {
	o := &output{wake: make(chan struct{}, 1)}
	o.ctx, o.gone = context.WithCancel(context.Background())
	return o
}

func (o *output) Write(p []byte) error {
	o.mu.Lock()
	fail, slow := o.fail, o.slow
	o.mu.Unlock()
	if slow > 0 {
		time.Sleep(slow)
	}
	if fail != nil {
		return fail
	}
	if o.ctx.Err() != nil {
		return errGone
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf.Write(p)
	return nil
}

func (o *output) Wait(until time.Time) error {
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-o.wake:
	case <-t.C:
	case <-o.ctx.Done():
		return errGone
	}
	return nil
}

func (o *output) Wake() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// seqs lists the events written, in order; 0 for one without a position.
func (o *output) seqs() (out []eventlog.Seq) {
	for line := range strings.Lines(o.text()) {
		var seq eventlog.Seq
		if n, _ := fmt.Sscanf(line, "%d {", &seq); n == 1 {
			out = append(out, seq)
		}
	}
	return out
}

// connection is a reader at work.
type connection struct {
	*output
	reader *Reader
	ended  chan error
}

// connect attaches a reader and runs it in the background.
func connect(t testing.TB, st *Stream, pos eventlog.Seq, fresh bool) *connection {
	t.Helper()
	c := &connection{output: newOutput(), ended: make(chan error, 1)}
	var err error
	if c.reader, err = st.Read(c.output, pos, fresh); err != nil {
		t.Fatal(err)
	}
	go func() { c.ended <- c.reader.Run(plainText{}, Every(10*time.Second), nil) }() // ends with the output or the stream
	return c
}

// leave closes the connection and waits for its reader.
func (c *connection) leave() error {
	c.gone()
	return <-c.ended
}

// Asks implements Conversation: no question is open.
func (*server) Asks([]byte) bool { return false }
