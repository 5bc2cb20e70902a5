package exchange

import (
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/calls"
	"github.com/holdfast-mcp/holdfast/internal/conversation"
	"github.com/holdfast-mcp/holdfast/internal/ledger"
	"github.com/holdfast-mcp/holdfast/internal/stdio"
	"github.com/holdfast-mcp/holdfast/internal/testkit"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// audience passes on what a scripted server says.
type audience struct{ stdio.Handler }

// troupe is the scripted servers, and how many may run.
type troupe struct {
	*testkit.Troupe
	max     int
	waiting int
	idle    time.Duration
	shared  bool
	tasks   func(tool string) TaskRule
	rules   func(tool string) calls.Rules
}

// stage is a host with scripted servers behind it.
type stage struct {
	t      testing.TB
	troupe *testkit.Troupe
	pool   *conversation.Pool
	host   *Host
}

func sealOf(t testing.TB, key string) cipher.AEAD {
	t.Helper()
	block, err := aes.NewCipher([]byte(key))
	if err != nil {
		t.Fatal(err)
	}
	seal, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	return seal
}

func newStage(t testing.TB, tr troupe) *stage {
	t.Helper()
	if tr.max == 0 {
		tr.max = 64
	}
	if tr.waiting == 0 {
		tr.waiting = 4096
	}
	if tr.idle == 0 {
		tr.idle = time.Hour
	}
	s := &stage{t: t, troupe: tr.Troupe}
	log := slog.New(slog.DiscardHandler)
	s.pool = conversation.NewPool(conversation.PoolOptions{
		Options: conversation.Options{
			Dial: func(h stdio.Handler) (conversation.Link, error) { return tr.Start(audience{h}), nil },
			Name: "kid", ClientInfo: []byte(`{"name":"holdfast","version":"1"}`), StartTimeout: time.Minute, MaxMessage: 1 << 20, Log: log, Shared: tr.shared,
		},
		Max: tr.max,
	})
	s.host = New(Options{Pool: s.pool, Name: "kid", Patience: 2 * time.Second, StartTimeout: time.Minute, QuestionTimeout: 10 * time.Minute,
		Idle: tr.idle, MaxWaiting: tr.waiting, Seal: sealOf(t, "0123456789abcdef"), Log: log,
		Ledger: ledger.Options{TTL: 10 * time.Minute, Window: time.Minute}, Tasks: tr.tasks, Rules: tr.rules})
	return s
}

var errOver = errors.New("the test is over")

// close ends all that there is, and holds that nothing is left.
func (s *stage) close() {
	s.t.Helper()
	s.host.Close(errOver)
	s.pool.Close(errOver)
	synctest.Wait()
	if n := s.host.InFlight(); n != 0 {
		s.t.Errorf("%d requests are in flight at the end", n)
	}
	if n := s.host.present.Load(); n != 0 {
		s.t.Errorf("%d requests are present at the end", n)
	}
	s.host.queue.mu.Lock()
	waiting, bytes := len(s.host.queue.calls), s.host.queue.bytes
	s.host.queue.mu.Unlock()
	s.host.mu.Lock()
	defer s.host.mu.Unlock()
	if waiting != 0 || bytes != 0 || len(s.host.runs) != 0 {
		s.t.Errorf("%d calls (%d bytes) wait and %d are suspended at the end", waiting, bytes, len(s.host.runs))
	}
}

// on runs a test on a stage, in virtual time.
func on(t *testing.T, tr troupe, f func(t *testing.T, s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, tr)
		defer s.close()
		f(t, s)
	})
}

// reply is what comes back for one request.
type reply struct {
	t      testing.TB
	cancel func(reason string)

	mu        sync.Mutex // guards the fields below
	notes     []string
	final     string
	at        time.Time // of final
	cancelled bool
}

func (r *reply) emit(msg []byte, final bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cancelled {
		r.t.Errorf("after it was cancelled came %s", msg)
	}
	if r.final != "" {
		r.t.Errorf("after the answer came %s", msg)
	}
	if _, err := jsonrpc.Parse(msg); err != nil {
		r.t.Errorf("no message: %s (%v)", msg, err)
	}
	if final {
		r.final, r.at = string(msg), time.Now()
	} else {
		r.notes = append(r.notes, string(msg))
	}
}

// answer returns the answer so far.
func (r *reply) answer() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.final
}

// told returns the notifications so far.
func (r *reply) told() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.notes...)
}

// stop cancels the request.
func (r *reply) stop() {
	r.cancel("enough \x01<said>")
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancelled = true
}

// who is a client: what it says of itself with each request.
type who struct {
	principal    string
	name         string
	capabilities string // JSON; default {}
	meta         string // more of _meta: `,"key":value`
}

func (w who) metaOf() string {
	capabilities := w.capabilities
	if capabilities == "" {
		capabilities = "{}"
	}
	return fmt.Sprintf(`{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":%q,"version":"1"},`+
		`"io.modelcontextprotocol/clientCapabilities":%s%s}`, w.name, capabilities, w.meta)
}

// request puts one together. params are members of an object, "" for none.
func (w who) request(id, method, params string) string {
	if params != "" {
		params += ","
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{%s"_meta":%s}}`, id, method, params, w.metaOf())
}

// send sends a request and returns at once.
func (s *stage) send(w who, message string) *reply {
	s.t.Helper()
	m, err := jsonrpc.Parse([]byte(message))
	if err != nil {
		s.t.Fatalf("%s: %v", message, err)
	}
	r := &reply{t: s.t}
	cancel, fail := s.host.Serve(Request{Principal: w.principal, Message: m, Emit: r.emit})
	if fail != nil {
		r.emit(fail.Answer(m.Raw(jsonrpc.ID)), true)
		return r
	}
	r.cancel = cancel
	return r
}

// ask sends a request and returns its answer.
func (s *stage) ask(w who, id, method, params string) string {
	s.t.Helper()
	r := s.send(w, w.request(id, method, params))
	s.within(time.Minute, method+" is answered", func() bool { return r.answer() != "" })
	return r.answer()
}

// call starts a tool call. rest are further members of params: `,"key":value`.
func (s *stage) call(w who, id, tool, args, rest string) *reply {
	s.t.Helper()
	return s.send(w, w.request(id, "tools/call", fmt.Sprintf(`"name":%q,"arguments":%s%s`, tool, args, rest)))
}

// done waits for the answer.
func (s *stage) done(r *reply) string {
	s.t.Helper()
	s.within(24*time.Hour, "an answer", func() bool { return r.answer() != "" })
	return r.answer()
}

// within fails the test unless cond comes true in time.
func (s *stage) within(d time.Duration, what string, cond func() bool) {
	s.t.Helper()
	for begin := time.Now(); ; {
		synctest.Wait()
		if cond() {
			return
		}
		since := time.Since(begin)
		if since > d {
			s.t.Fatalf("not within %v: %s", d, what)
		}
		time.Sleep(time.Millisecond + since/100)
	}
}

func has(t testing.TB, what, got string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(got, w) {
			t.Errorf("%s: %s is not in %s", what, w, got)
		}
	}
}

// text is the text of a tool's answer.
func text(t testing.TB, answer string) string {
	t.Helper()
	m, err := testkit.Parse([]byte(answer))
	if err != nil {
		t.Fatal(err)
	}
	return m.Text()
}

// result is the member of an answer's result, raw JSON.
func result(answer, key string) string {
	m, err := jsonrpc.Parse([]byte(answer))
	if err != nil {
		return ""
	}
	return string(jsonrpc.Get(m.Raw(jsonrpc.Result), key))
}

// code is an error's code, "" for none.
func code(answer string) string {
	m, err := jsonrpc.Parse([]byte(answer))
	if err != nil {
		return ""
	}
	return string(jsonrpc.Get(m.Raw(jsonrpc.Error), "code"))
}

// wantError holds that an answer is an error.
func wantError(t testing.TB, what, answer, wantCode string, words ...string) {
	t.Helper()
	if code(answer) != wantCode {
		t.Errorf("%s: answered %s, want error %s", what, answer, wantCode)
	}
	has(t, what, answer, words...)
}
