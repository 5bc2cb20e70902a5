package conversation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/stdio"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// server is one process of the server, as far as a conversation can see. The
// test says what it says.
type server struct {
	t testing.TB
	h stdio.Handler

	mu      sync.Mutex // guards the fields below
	sent    []string   // to it
	busy    error      // of Send
	stopped int
	once    sync.Once
}

func (s *server) Send(m *jsonrpc.Message, edits ...jsonrpc.Edit) error {
	return s.SendRaw(m.Append(nil, edits...))
}

func (s *server) SendRaw(line []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy != nil {
		return s.busy
	}
	s.sent = append(s.sent, string(line))
	return nil
}

func (s *server) Stop() {
	s.mu.Lock()
	s.stopped++
	s.mu.Unlock()
	s.die(stdio.ErrClosed)
}

// die is the end of the process.
func (s *server) die(err error) { s.once.Do(func() { s.h.Closed(err) }) }

func (s *server) say(format string, args ...any) {
	line := fmt.Appendf(nil, format, args...)
	s.h.Line(line)
	clear(line) // it is not the conversation's to keep
}

// heard returns what was sent to the server since it was last asked.
func (s *server) heard() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.sent
	s.sent = nil
	return out
}

// next demands that exactly one message was sent, and returns it.
func (s *server) next() parsed {
	s.t.Helper()
	got := s.heard()
	if len(got) != 1 {
		s.t.Fatalf("the server was sent %d messages, want one: %q", len(got), got)
	}
	return parse(s.t, got[0])
}

// parsed is a message taken apart.
type parsed struct {
	line   string
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  *struct {
		Code    int
		Message string
		Data    json.RawMessage
	}
}

func parse(t testing.TB, line string) parsed {
	t.Helper()
	p := parsed{line: line}
	if err := json.Unmarshal([]byte(line), &p); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return p
}

// farm starts servers.
type farm struct {
	t     testing.TB
	delay time.Duration // of each start

	mu   sync.Mutex // guards the fields below
	all  []*server
	when []time.Time
	fail error
}

func (f *farm) dial(h stdio.Handler) (Link, error) {
	if f.delay > 0 {
		time.Sleep(f.delay)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.when = append(f.when, time.Now())
	if f.fail != nil {
		return nil, f.fail
	}
	s := &server{t: f.t, h: h}
	f.all = append(f.all, s)
	return s, nil
}

// latest is the server started last.
func (f *farm) latest() *server {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all[len(f.all)-1]
}

func (f *farm) started() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.when)
}

// client is a peer that keeps what it is told.
type client struct {
	t    testing.TB
	name string
	conv *Conversation

	mu       sync.Mutex // guards the fields below
	answers  map[*Call]string
	messages []string
	of       []*Call // which call each message belongs to
	gone     error
}

func (c *client) Answer(call *Call, msg []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before, twice := c.answers[call]; twice {
		c.t.Errorf("%s: call %s was answered twice: %s and %s", c.name, call.ID, before, msg)
	}
	if !bytes.Contains(msg, []byte(`"id":`+string(call.ID)+`,`)) {
		c.t.Errorf("%s: the answer to %s has another id: %s", c.name, call.ID, msg)
	}
	c.answers[call] = string(msg)
}

func (c *client) Message(call *Call, msg []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.messages = append(c.messages, string(msg))
	c.of = append(c.of, call)
}

func (c *client) Gone(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone != nil {
		c.t.Errorf("%s was told twice that the conversation is over", c.name)
	}
	c.gone = err
}

// over returns what Gone was told.
func (c *client) over() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone
}

func (c *client) message(format string, args ...any) *jsonrpc.Message {
	c.t.Helper()
	m, err := jsonrpc.Parse(fmt.Appendf(nil, format, args...))
	if err != nil {
		c.t.Fatal(err)
	}
	return m
}

// call sends a request. Its id and token are those that the message holds.
func (c *client) call(format string, args ...any) *Call {
	c.t.Helper()
	call, err := c.try(format, args...)
	if err != nil {
		c.t.Fatal(err)
	}
	return call
}

func (c *client) try(format string, args ...any) (*Call, error) {
	c.t.Helper()
	m := c.message(format, args...)
	call := &Call{Peer: c, ID: bytes.Clone(m.Raw(jsonrpc.ID)), Token: bytes.Clone(m.Raw(jsonrpc.MetaToken))}
	return call, c.conv.Call(call, m)
}

// tool calls a tool, with the id as the token too.
func (c *client) tool(id string) *Call {
	c.t.Helper()
	return c.call(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"x","_meta":{"progressToken":%s}}}`, id, id)
}

func (c *client) notify(format string, args ...any) {
	c.t.Helper()
	if err := c.conv.Notify(c, c.message(format, args...)); err != nil {
		c.t.Error(err)
	}
}

// answer returns the answer to a call, "" for none yet.
func (c *client) answer(call *Call) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answers[call]
}

// told returns the messages since it was last asked.
func (c *client) told() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.messages
	c.messages, c.of = nil, nil
	return out
}

// stage is a conversation with a farm behind it.
type stage struct {
	*farm
	t    testing.TB
	conv *Conversation
	log  *bytes.Buffer // read it when nothing is going on
}

func begin(t testing.TB, shared bool) *stage {
	t.Helper()
	s := &stage{farm: &farm{t: t}, t: t, log: &bytes.Buffer{}}
	conv, err := Start(Options{
		Dial: s.dial, Shared: shared, Name: "kid", ClientInfo: []byte(`{"name":"holdfast","version":"1"}`),
		StartTimeout: time.Minute, MaxMessage: 1000, Log: slog.New(slog.NewTextHandler(s.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.conv = conv
	return s
}

// end closes the conversation and sees that no process is left.
func (s *stage) end() {
	s.t.Helper()
	s.conv.Close(errors.New("test ended"))
	s.conv.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, srv := range s.all {
		srv.mu.Lock()
		if srv.stopped == 0 {
			s.t.Errorf("server %d was never stopped", i+1)
		}
		srv.mu.Unlock()
	}
}

func (s *stage) join(name string) *client {
	s.t.Helper()
	c := &client{t: s.t, name: name, conv: s.conv, answers: map[*Call]string{}}
	if err := s.conv.Join(c); err != nil {
		s.t.Fatal(err)
	}
	return c
}

const serverResult = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}, "logging":{}},"serverInfo":{"name":"kid","version":"1"}}`

// greet plays the server's part in the handshake that the gateway makes.
func (s *server) greet(result string) parsed {
	s.t.Helper()
	hello := s.next()
	if hello.Method != "initialize" {
		s.t.Fatalf("the handshake begins with %s", hello.line)
	}
	s.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, hello.ID, result)
	return hello
}

const clientHello = `{"jsonrpc":"2.0","id":%s,"method":"initialize","params":{"protocolVersion":%q,"capabilities":%s,"clientInfo":{"name":%q,"version":"0"}}}`

// open is the whole handshake of a client with a server of its own.
func (s *stage) open(name string) *client {
	s.t.Helper()
	c := s.join(name)
	call := c.call(clientHello, `"i"`, "2025-06-18", `{"elicitation":{}}`, name)
	srv := s.latest()
	srv.greet(serverResult)
	if got := parse(s.t, c.answer(call)); string(got.Result) != serverResult {
		s.t.Fatalf("initialize was answered with %s", got.line)
	}
	c.notify(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	if got := srv.next(); got.Method != "notifications/initialized" {
		s.t.Fatalf("then came %s", got.line)
	}
	return c
}

// introduce is the handshake of a client of a shared server. can is raw JSON.
func (s *stage) introduce(name, can string) *client {
	s.t.Helper()
	c := s.join(name)
	c.call(clientHello, `"i"`, "2025-11-25", can, name)
	return c
}

// sharedStage is a shared conversation whose handshake is done.
func sharedStage(t testing.TB) (*stage, *server) {
	t.Helper()
	s := begin(t, true)
	srv := s.latest()
	srv.greet(serverResult)
	if got := srv.next(); got.Method != "notifications/initialized" {
		t.Fatalf("the gateway's handshake ends with %s", got.line)
	}
	return s, srv
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// restarted waits for a restart: the first one is at once.
func restarted() {
	time.Sleep(time.Millisecond)
	synctest.Wait()
}

// methods lists what messages are about.
func methods(t testing.TB, lines []string) (out []string) {
	t.Helper()
	for _, l := range lines {
		p := parse(t, l)
		out = append(out, p.Method+strings.ReplaceAll(string(p.Params), `"`, ""))
	}
	return out
}

func equal(t testing.TB, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\ngot  %q\nwant %q", what, got, want)
	}
}
