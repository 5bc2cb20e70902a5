package remote

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/testkit"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// above is what stands above a link: it notes what it is told.
type above struct {
	mu       sync.Mutex
	lines    []string
	oversize int
	closed   []error
	renewals int
}

func (a *above) Line(line []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lines = append(a.lines, string(line))
}

func (a *above) Oversize([]byte, int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.oversize++
}

func (a *above) Closed(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = append(a.closed, err)
}

func (a *above) Renewed() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.renewals++
}

func (a *above) all() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.lines...)
}

// answers returns the answers under an id, as spelled.
func (a *above) answers(id string) (out []string) {
	for _, line := range a.all() {
		m, err := jsonrpc.Parse([]byte(line))
		if err == nil && m.Kind() == jsonrpc.Response && string(m.Raw(jsonrpc.ID)) == id {
			out = append(out, line)
		}
	}
	return out
}

// got returns the notifications and requests with a method.
func (a *above) got(method string) (out []string) {
	for _, line := range a.all() {
		if m, err := jsonrpc.Parse([]byte(line)); err == nil && m.Is(method) {
			out = append(out, line)
		}
	}
	return out
}

// seen is one request that the server got.
type seen struct {
	verb   string
	path   string
	header http.Header
	m      *jsonrpc.Message // nil without a body
	at     time.Time
}

func (s seen) is(method string) bool { return s.m != nil && s.m.Is(method) }

func (s seen) id() string {
	if s.m == nil {
		return ""
	}
	return string(s.m.Raw(jsonrpc.ID))
}

// stage is a link before a scripted server, all in one bubble.
type stage struct {
	*testing.T
	*above
	link *Link
	ln   *testkit.MemListener

	mu   sync.Mutex
	seen []seen
}

// script is what a server does with one request.
type script func(s *stage, w http.ResponseWriter, r *http.Request, got seen)

// play runs f with a link to a server with the script, in virtual time.
func play(t *testing.T, o Options, serve script, f func(s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{T: t, above: &above{}, ln: testkit.NewMemListener()}
		var running sync.WaitGroup
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			running.Add(1)
			defer running.Done()
			body, _ := io.ReadAll(r.Body)
			got := seen{verb: r.Method, path: r.URL.RequestURI(), header: r.Header.Clone(), at: time.Now()}
			got.m, _ = jsonrpc.Parse(body)
			s.mu.Lock()
			s.seen = append(s.seen, got)
			s.mu.Unlock()
			serve(s, w, r, got)
		}), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
		running.Go(func() { _ = server.Serve(s.ln) })
		if o.URL == "" {
			o.URL = s.ln.URL("/mcp")
		}
		if o.DialContext == nil {
			o.DialContext = s.ln.Dial
		}
		o.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
		link, err := Dial(o, s.above)
		if err != nil {
			t.Fatal(err)
		}
		s.link = link
		defer func() { // after a Fatal, too: nothing may be left in the bubble
			link.Stop()
			_ = server.Close()
			running.Wait()
			if n := len(s.closed); n != 1 {
				t.Errorf("Closed was called %d times", n)
			}
			s.onlyOnce()
		}()
		f(s)
	})
}

// onlyOnce checks that no id was answered twice, and none executed twice.
func (s *stage) onlyOnce() {
	s.Helper()
	count := map[string]int{}
	for _, line := range s.all() {
		if m, err := jsonrpc.Parse([]byte(line)); err == nil && m.Kind() == jsonrpc.Response {
			count[string(m.Raw(jsonrpc.ID))]++
		}
	}
	for id, n := range count {
		if n > 1 {
			s.Errorf("id %s was answered %d times", id, n)
		}
	}
}

func (s *stage) send(format string, args ...any) {
	s.Helper()
	if err := s.link.SendRaw(fmt.Appendf(nil, format, args...)); err != nil {
		s.Fatal(err)
	}
}

// await returns the answer to a request, which must come in time.
func (s *stage) await(id string, limit time.Duration) string {
	s.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(max(limit/2000, time.Millisecond)) {
		synctest.Wait()
		if got := s.answers(id); len(got) > 0 {
			return got[0]
		}
		if time.Now().After(end) {
			s.Fatalf("no answer to %s within %s; got %q", id, limit, s.all())
		}
	}
}

// requests returns what the server got that passes.
func (s *stage) requests(pass func(seen) bool) (out []seen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.seen {
		if pass(r) {
			out = append(out, r)
		}
	}
	return out
}

func (s *stage) posts(method string) []seen {
	return s.requests(func(r seen) bool { return r.verb == http.MethodPost && r.is(method) })
}

func (s *stage) gets() []seen {
	return s.requests(func(r seen) bool { return r.verb == http.MethodGet })
}

const (
	hello     = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	greeting  = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`
	greeted   = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	modernRaw = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
)

// handshake opens a session.
func (s *stage) handshake() {
	s.Helper()
	s.send(hello)
	if got := s.await("1", time.Minute); !strings.Contains(got, `"result"`) {
		s.Fatalf("initialize: %s", got)
	}
	s.send(greeted)
	synctest.Wait()
}

// outcome is the data.outcome of an error answer, and its code and status.
func (s *stage) outcome(line string) (outcome string, code, status int, message string) {
	s.Helper()
	var m struct {
		Error struct {
			Code    int
			Message string
			Data    struct {
				Outcome string
				Status  int
			}
		}
	}
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		s.Fatal(err)
	}
	return m.Error.Data.Outcome, m.Error.Code, m.Error.Data.Status, m.Error.Message
}

// must checks the outcome of an error answer.
func (s *stage) must(line, want string) {
	s.Helper()
	if got, _, _, _ := s.outcome(line); got != want {
		s.Errorf("outcome %q, want %q: %s", got, want, line)
	}
}

func writeJSON(w http.ResponseWriter, id, result string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

func say(w http.ResponseWriter, text string) {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "text/event-stream")
	}
	_, _ = io.WriteString(w, text)
	_ = http.NewResponseController(w).Flush()
}

// cut ends a connection without a word.
func cut(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

// legacy is a well-behaved server with sessions, apart from what more does:
// it returns true for what it has served.
func legacy(more script) func(s *stage, w http.ResponseWriter, r *http.Request, got seen) {
	return func(s *stage, w http.ResponseWriter, r *http.Request, got seen) {
		tracked := &touched{ResponseWriter: w}
		if more != nil {
			more(s, tracked, r, got)
		}
		switch {
		case tracked.done:
		case got.verb == http.MethodGet:
			say(w, ": hello\n\n")
			<-r.Context().Done()
		case got.verb == http.MethodDelete:
		case got.is("initialize"):
			w.Header().Set("Mcp-Session-Id", "s1")
			writeJSON(w, got.id(), greeting)
		case got.m != nil && got.m.Kind() == jsonrpc.Request:
			writeJSON(w, got.id(), `{}`)
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	}
}

// touched notes that a response was begun.
type touched struct {
	http.ResponseWriter
	done bool
}

func (t *touched) Unwrap() http.ResponseWriter { t.done = true; return t.ResponseWriter }
func (t *touched) WriteHeader(status int)      { t.done = true; t.ResponseWriter.WriteHeader(status) }
func (t *touched) Write(b []byte) (int, error) { t.done = true; return t.ResponseWriter.Write(b) }
