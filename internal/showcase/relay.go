package showcase

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/sse"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// relay offers the tool over HTTP as the simplest bridges do: the tool runs for
// the connection that it was called on, and what it says goes there or nowhere.
// HTTP+SSE is at /sse, a Streamable HTTP without sessions at /mcp.
type relay struct {
	mux     *http.ServeMux
	tool    *tool
	running sync.WaitGroup // servers, each begun by a handler that is running

	mu       sync.Mutex // guards the field below
	sessions map[string]io.Writer
}

func newRelay(t *tool) *relay {
	n := &relay{mux: http.NewServeMux(), tool: t, sessions: map[string]io.Writer{}}
	n.mux.HandleFunc("GET /sse", n.events)
	n.mux.HandleFunc("POST /message", n.message)
	n.mux.HandleFunc("POST /mcp", n.post)
	return n
}

// ServeHTTP implements http.Handler.
func (n *relay) ServeHTTP(w http.ResponseWriter, r *http.Request) { n.mux.ServeHTTP(w, r) }

// wait returns when no server runs any more. No handler must be left.
func (n *relay) wait() { n.running.Wait() }

// start runs the server for as long as ctx. The lines that it is sent go to in,
// those that it sends come from out.
func (n *relay) start(ctx context.Context) (in io.Writer, out *bufio.Scanner) {
	r, in := io.Pipe()
	lines, w := io.Pipe()
	n.running.Go(func() { // ends with ctx
		_ = n.tool.serve(ctx, r, w)
		_ = r.Close()
		_ = w.Close()
	})
	return in, bufio.NewScanner(lines)
}

// events is the stream of HTTP+SSE, and its server's life.
func (n *relay) events(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	in, out := n.start(ctx)
	id := rand.Text()
	n.mu.Lock()
	n.sessions[id] = in
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		delete(n.sessions, id)
		n.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	err := write(w, sse.Event{Name: "endpoint", Data: []byte("/message?sessionId=" + id)})
	for err == nil && out.Scan() {
		err = write(w, sse.Event{Name: "message", Data: out.Bytes()})
	}
}

// message takes what a client of HTTP+SSE sends.
func (n *relay) message(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	in := n.sessions[r.URL.Query().Get("sessionId")]
	n.mu.Unlock()
	line, err := oneLine(r.Body)
	if in == nil || err != nil {
		http.Error(w, "no session, or no message", http.StatusBadRequest)
		return
	}
	if _, err := in.Write(line); err != nil {
		http.Error(w, "the session has ended", http.StatusGone)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

// post answers one request of Streamable HTTP with a server of its own.
func (n *relay) post(w http.ResponseWriter, r *http.Request) {
	line, err := oneLine(r.Body)
	if err != nil {
		http.Error(w, "no message", http.StatusBadRequest)
		return
	}
	m, err := jsonrpc.Parse(bytes.TrimSpace(line))
	if err != nil || m.Kind() != jsonrpc.Request {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	in, out := n.start(ctx)
	if _, err := in.Write(line); err != nil {
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for out.Scan() {
		if write(w, sse.Event{Name: "message", Data: out.Bytes()}) != nil {
			return
		}
		if answer, err := jsonrpc.Parse(out.Bytes()); err == nil && answer.Kind() == jsonrpc.Response {
			return
		}
	}
}

// write sends one event at once.
func write(w http.ResponseWriter, e sse.Event) error {
	control := http.NewResponseController(w)
	if err := control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	if _, err := w.Write(sse.AppendEvent(nil, e)); err != nil {
		return err
	}
	return control.Flush()
}

// oneLine reads a message as a line of stdio.
func oneLine(body io.Reader) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(body, 1<<20))
	if err != nil {
		return nil, err
	}
	var line bytes.Buffer
	if err := json.Compact(&line, raw); err != nil {
		return nil, err
	}
	line.WriteByte('\n')
	return line.Bytes(), nil
}
