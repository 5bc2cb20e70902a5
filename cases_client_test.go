package holdfast_test

import (
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// received is one message as it came.
type received struct {
	raw   string
	event string // its id in the event stream
	via   *stream
	at    time.Time
}

// client is a raw client of any binding. It keeps the books of what it asked
// and what it was answered.
type client struct {
	b        *bench
	t        *testing.T
	http     *http.Client
	header   http.Header // of every request
	endpoint string      // where HTTP+SSE posts; "" for Streamable HTTP
	main     *stream     // of HTTP+SSE
	pipe     io.WriteCloser
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	asked   map[string]int
	answers map[string][]string
	waived  map[string]bool // asked, and not to be answered
	refused map[string]int  // answered without an id
	tools   map[string]int  // tools called
	got     []received
}

func (b *bench) client(links ...link) *client {
	c := &client{
		b: b, t: b.t, header: http.Header{}, asked: map[string]int{}, answers: map[string][]string{},
		waived: map[string]bool{}, refused: map[string]int{}, tools: map[string]int{},
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	tr := &http.Transport{DisableCompression: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := b.dial(ctx)
		if err != nil {
			return nil, err
		}
		for _, l := range links {
			conn = l(conn)
		}
		return conn, nil
	}}
	if b.h2 {
		tr.Protocols = new(http.Protocols)
		tr.Protocols.SetUnencryptedHTTP2(true)
	}
	c.http = &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	b.clients = append(b.clients, c)
	return c
}

func (c *client) close() {
	c.cancel()
	if c.pipe != nil {
		_ = c.pipe.Close()
	}
	c.wg.Wait()
	c.http.CloseIdleConnections()
}

// streamable opens a session over Streamable HTTP.
func (b *bench) streamable(version string, links ...link) *client {
	b.t.Helper()
	c := b.client(links...)
	c.handshake(version, "{}")
	return c
}

// legacy opens a session over HTTP+SSE.
func (b *bench) legacy(version string, links ...link) *client {
	b.t.Helper()
	c := b.client(links...)
	c.listen("/sse", "")
	c.handshake(version, "{}")
	return c
}

// piped opens a session over stdio.
func (b *bench) piped(version string) *client {
	b.t.Helper()
	c := b.pipe()
	c.handshake(version, "{}")
	return c
}

// bindings are the ways to open a session.
var bindings = map[string]func(b *bench, version string) *client{
	"streamable": func(b *bench, version string) *client { return b.streamable(version) },
	"sse":        func(b *bench, version string) *client { return b.legacy(version) },
	"stdio":      func(b *bench, version string) *client { return b.piped(version) },
}

// pipe connects over stdio.
func (b *bench) pipe() *client {
	in, w := io.Pipe()
	r, out := io.Pipe()
	c := b.pipeTo(w, r)
	c.wg.Go(func() { // ends with the pipe, or the gateway
		_ = b.g.ServePipe(context.Background(), in, out)
		_ = out.Close()
		_ = in.Close()
	})
	return c
}

// pipeTo is a client of whatever reads and writes at the other ends.
func (b *bench) pipeTo(w io.WriteCloser, r io.Reader) *client {
	c := b.client()
	c.pipe = w
	c.main = newStream(c)
	close(c.main.opened)
	c.wg.Go(func() { // ends with r
		defer close(c.main.ended)
		c.main.readLines(r)
	})
	return c
}

// handshake is initialize and notifications/initialized. The id is its own.
func (c *client) handshake(version, capabilities string) {
	c.t.Helper()
	s := c.send(hello(`"hello"`, version, capabilities))
	answer := c.answer(`"hello"`)
	if !strings.Contains(answer, `"result":`) {
		c.t.Fatalf("initialize was answered with %s", answer)
	}
	if id := s.open().header.Get("Mcp-Session-Id"); id != "" {
		c.header.Set("Mcp-Session-Id", id)
		c.header.Set("MCP-Protocol-Version", version)
	}
	c.send(initialized).done()
}

// send sends a message in the way of the binding, over HTTP by a POST.
func (c *client) send(body string, header ...string) *stream {
	if c.pipe != nil {
		s := newStream(c)
		c.note(body)
		c.wg.Go(func() { // ends when it is read
			defer close(s.ended)
			close(s.opened)
			_, s.err = io.WriteString(c.pipe, body+"\n")
		})
		<-s.ended
		return s
	}
	path := c.endpoint
	if path == "" {
		path = "/mcp"
	}
	return c.do(http.MethodPost, path, body, header...)
}

// listen opens an event stream, the one of HTTP+SSE if that is its path.
func (c *client) listen(path, lastEventID string, header ...string) *stream {
	c.t.Helper()
	if lastEventID != "" {
		header = append(header, "Last-Event-ID", lastEventID)
	}
	s := c.do(http.MethodGet, path, "", append([]string{"Accept", "text/event-stream"}, header...)...)
	s.open()
	if s.status == http.StatusOK && strings.Contains(path, "/sse") {
		c.main = s
		c.b.within(bound, "an endpoint event", func() bool { return s.endpointEvent() != "" })
		c.endpoint = s.endpointEvent()
	}
	return s
}

// do starts any request and returns at once. Headers come in pairs; an empty
// value removes one.
func (c *client) do(method, path, body string, header ...string) *stream {
	c.t.Helper()
	s := newStream(c)
	ids := c.note(body)
	ctx, cancel := context.WithCancel(c.ctx)
	s.cut = cancel
	url := path
	if !strings.HasPrefix(path, "http") {
		url = "http://localhost" + path
	}
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Accept", "application/json, text/event-stream")
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	maps.Copy(r.Header, c.header)
	for i := 0; i < len(header); i += 2 {
		switch k, v := header[i], header[i+1]; {
		case k == "Host":
			r.Host = v
		case v == "":
			r.Header.Del(k)
		default:
			r.Header.Del(k)
			r.Header[k] = strings.Split(v, "\n") // the spelling is the caller's
		}
	}
	c.wg.Go(func() { // ends with the response, or ctx
		defer close(s.ended)
		s.run(c.http, r, ids)
	})
	return s
}

// answer waits for the answer to a request.
func (c *client) answer(id string) string {
	c.t.Helper()
	var found []string
	c.b.within(c.b.patience(), "an answer to "+id, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		found = c.answers[id]
		return len(found) > 0
	})
	return found[len(found)-1]
}

// ask sends a request and waits for its answer.
func (c *client) ask(request string) string {
	c.t.Helper()
	m, _ := jsonrpc.Parse([]byte(request))
	c.send(request)
	return c.answer(string(m.Raw(jsonrpc.ID)))
}

// await waits for a message that holds all the words.
func (c *client) await(words ...string) received {
	c.t.Helper()
	var found []received
	c.b.within(c.b.patience(), "a message with "+strings.Join(words, " and "), func() bool {
		found = c.find(words...)
		return len(found) > 0
	})
	return found[0]
}

// find returns the messages so far that hold all the words.
func (c *client) find(words ...string) (out []received) {
	c.mu.Lock()
	defer c.mu.Unlock()
next:
	for _, r := range c.got {
		for _, w := range words {
			if !strings.Contains(r.raw, w) {
				continue next
			}
		}
		out = append(out, r)
	}
	return out
}

// note enters what a body asks, and returns the ids.
func (c *client) note(body string) (ids []string) {
	each := [][]byte{[]byte(body)}
	if split, err := jsonrpc.Split([]byte(body)); err == nil {
		each = split
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range each {
		m, err := jsonrpc.Parse(one)
		if m == nil || err == nil && m.Kind() != jsonrpc.Request || m.LegalID() == nil {
			continue
		}
		id := string(m.LegalID())
		ids = append(ids, id)
		c.asked[id]++
		if m.Is("tools/call") {
			c.tools[string(m.Text(jsonrpc.Name))]++
		}
	}
	return ids
}

// take enters a message that came.
func (c *client) take(raw []byte, event string, s *stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := string(raw)
	c.got = append(c.got, received{text, event, s, time.Now()})
	m, err := jsonrpc.Parse(raw)
	if err != nil {
		c.t.Errorf("received what is no message: %.300q (%v)", raw, err)
		return
	}
	if m.Kind() == jsonrpc.Response && m.Has(jsonrpc.ID) {
		id := string(m.Raw(jsonrpc.ID))
		c.answers[id] = append(c.answers[id], text)
	}
}

// refusal enters that a whole POST was refused, without an id.
func (c *client) refusal(ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		c.refused[id]++
	}
}

// waive says that nobody waits for the answer to a request any more, by the
// rules of the binding or because the test has broken the way back. It must
// not come, then.
func (c *client) waive(id string) {
	c.mu.Lock()
	c.waived[id] = true
	c.mu.Unlock()
}

// open returns the requests that have no answer.
func (c *client) open() (ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, n := range c.asked {
		if !c.waived[id] && len(c.answers[id])+c.refused[id] < n {
			ids = append(ids, id)
		}
	}
	return ids
}

// audit holds the books against the rule of one answer to a request.
func (c *client) audit(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, n := range c.asked {
		if c.waived[id] {
			n = 0
		}
		if got := len(c.answers[id]) + c.refused[id]; got != n {
			t.Errorf("request %s: %d answers, want %d: %.500q", id, got, n, c.answers[id])
		}
	}
	for id := range c.answers {
		if c.asked[id] == 0 {
			t.Errorf("an answer to %s, which was never asked: %.500q", id, c.answers[id])
		}
	}
}
