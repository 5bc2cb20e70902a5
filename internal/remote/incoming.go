package remote

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/internal/httpclient"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// incoming takes what the server wrote as one message. of is the request whose
// response it stood in, nil for none. It reports whether it was a message.
func (l *Link) incoming(data []byte, of *message) bool {
	m, err := jsonrpc.Parse(data)
	switch {
	case errors.Is(err, jsonrpc.ErrBatch): // 2025-03-26
		each, err := jsonrpc.Split(data)
		if err != nil {
			l.skip(data, err)
			return false
		}
		for _, one := range each {
			if one[0] == '{' {
				l.incoming(one, of)
			}
		}
		return true
	case err != nil:
		l.skip(data, err)
		return false
	}
	if m.Kind() == jsonrpc.Response {
		l.answer(m, of)
		return true
	}
	line := m.Bytes()
	if bytes.ContainsAny(line, "\r\n") {
		line = m.Append(nil)
	}
	l.up.line(line)
	return true
}

// skip tells of what is no message: once, then each time it has grown tenfold.
func (l *Link) skip(data []byte, err error) {
	if n := l.up.skipped(); n == 1 || n == 10 || n == 100 || n%1000 == 0 {
		l.log.Warn("skipped what the server sent: it is no JSON-RPC message", "data", string(data[:min(len(data), 200)]), "why", err, "skipped", n)
	}
}

// answer hands an answer to who waits for it. One that nobody waits for, of a
// cancelled request or a second one, is dropped.
func (l *Link) answer(m *jsonrpc.Message, of *message) {
	raw := m.Raw(jsonrpc.ID)
	l.mu.Lock()
	msg := l.pending[string(raw)]
	if msg == nil && len(raw) > 0 && raw[0] == '"' { // some servers answer "7" to 7
		msg = l.pending[string(m.Text(jsonrpc.ID))]
	}
	if msg == nil && of != nil && m.Has(jsonrpc.Error) && (raw == nil || string(raw) == "null") {
		msg = of // an error without an id, in the response to a request
	}
	if msg == nil || l.pending[msg.id] != msg {
		l.mu.Unlock()
		l.log.Debug("dropped an answer that nobody waits for", "id", string(raw[:min(len(raw), 100)]))
		return
	}
	l.takeLocked(msg)
	if msg.handshake() && !msg.own && m.Has(jsonrpc.Result) {
		l.openedLocked(msg, m)
	}
	if msg.modern && m.Has(jsonrpc.Result) {
		l.modern = era.Version(msg.m.Text(jsonrpc.MetaVersion))
	}
	if of != msg && l.events == nil && msg.dispatched { // its own response has nothing more to bring
		time.AfterFunc(linger, func() { msg.cancel(nil) })
	}
	l.mu.Unlock()
	if msg.method == "tools/list" && msg.modern && m.Has(jsonrpc.Result) {
		l.mirror.Learn(m.Raw(jsonrpc.Result))
	}
	line := m.Append(nil, jsonrpc.Edit{Field: jsonrpc.ID, With: []byte(msg.id)})
	if raw == nil {
		line = append(append(append([]byte(`{"jsonrpc":"2.0","id":`), msg.id...), `,"error":`...), m.Raw(jsonrpc.Error)...)
		line = append(line, '}')
	}
	l.give(msg, line)
}

// give delivers the answer to a request that was taken.
func (l *Link) give(msg *message, line []byte) {
	if !msg.own {
		l.up.line(line)
		return
	}
	if m, err := jsonrpc.Parse(line); err == nil {
		msg.inner <- m // has room for the one answer
	}
}

// A failure's outcome, as it stands in an error's data.
const (
	notExecuted = "not_executed"
	executed    = "executed"
	unknown     = "unknown"
)

// failure is why there is no answer of the server.
type failure struct {
	outcome string
	code    int // 0: -32000
	text    string
	status  int    // of HTTP, 0 for none
	auth    string // WWW-Authenticate
}

// Error implements error.
func (f *failure) Error() string { return f.text }

// codeLink answers what could not be carried to the server, or its answer not
// back.
const codeLink = -32000

// fail answers a request with an error, if it is not answered.
func (l *Link) fail(msg *message, f *failure) {
	l.mu.Lock()
	taken := l.takeLocked(msg)
	msg.failed = msg.failed || taken
	l.mu.Unlock()
	if !taken {
		return
	}
	data := jsonrpc.AppendString([]byte(`{"outcome":`), f.outcome)
	if f.status != 0 {
		data = strconv.AppendInt(append(data, `,"status":`...), int64(f.status), 10)
	}
	if f.auth != "" {
		data = jsonrpc.AppendString(append(data, `,"www_authenticate":`...), f.auth)
	}
	if f.code == 0 {
		f.code = codeLink
	}
	l.give(msg, jsonrpc.AppendError(nil, []byte(msg.id), f.code, fmt.Sprintf("MCP server at %s: %s", l.name, f.text), append(data, '}')))
}

// failAll ends the requests of the handshake era that may have reached a
// server which can answer them no more.
func (l *Link) failAll(f failure) {
	l.mu.Lock()
	var lost []*message
	for _, msg := range l.pending {
		switch {
		case !msg.posted || msg.modern:
		case msg.posting:
			msg.owed = &f
		default:
			lost = append(lost, msg)
		}
	}
	l.mu.Unlock()
	for _, msg := range lost {
		l.fail(msg, &f)
	}
}

// failureOf is why a request could not be sent, or its answer not be had.
func failureOf(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	f := &failure{outcome: unknown, text: err.Error()}
	if hf, ok := errors.AsType[*httpclient.Failure](err); ok && !hf.Sent {
		f.outcome = notExecuted
	}
	return f
}

// maxRefusal bounds what is read of a response that is no success.
const maxRefusal = 64 << 10

// refusal is a response that is no success.
type refusal struct {
	status int
	header http.Header
	body   []byte
	fault  *jsonrpc.Message // the JSON-RPC error in it, if it is the request's own
}

// refusalOf reads a response that is no success, and closes it.
func (l *Link) refusalOf(msg *message, resp *httpclient.Response) *refusal {
	defer func() { _ = resp.Body.Close() }()
	r := &refusal{status: resp.Status, header: resp.Header}
	late := time.AfterFunc(l.o.PostTimeout, func() { _ = resp.Body.Close() })
	defer late.Stop()
	r.body, _ = io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	m, err := jsonrpc.Parse(r.body)
	if err != nil || m.Kind() != jsonrpc.Response || !m.Has(jsonrpc.Error) {
		return r
	}
	if id := m.Raw(jsonrpc.ID); id == nil || string(id) == "null" || string(id) == msg.id || string(m.Text(jsonrpc.ID)) == msg.id {
		r.fault = m
	}
	return r
}

// modern reports whether the refusal shows that the server speaks the stateless
// era.
func (r *refusal) modern() bool {
	return r.fault != nil && era.RecognizedModernError(r.fault.Raw(jsonrpc.Error))
}

// notExecutedStatus reports whether a status proves that the request was not
// executed.
func (r *refusal) notExecutedStatus() bool {
	switch r.status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed,
		http.StatusNotAcceptable, http.StatusProxyAuthRequired, http.StatusLengthRequired, http.StatusRequestEntityTooLarge,
		http.StatusRequestURITooLong, http.StatusUnsupportedMediaType, http.StatusMisdirectedRequest,
		http.StatusTooManyRequests, http.StatusRequestHeaderFieldsTooLarge:
		return true
	case http.StatusServiceUnavailable:
		return r.header.Get("Retry-After") != ""
	}
	return false
}

// maxWhy bounds a reason that is no message, in bytes.
const maxWhy = 200

// why is the reason in a refusal, "" for none: that of an error, or a line of
// plain text, as those say who guard a server.
func (r *refusal) why() (text string) {
	if r.fault != nil {
		_ = json.Unmarshal(jsonrpc.Get(r.fault.Raw(jsonrpc.Error), "message"), &text)
		return text
	}
	kind, _, _ := mime.ParseMediaType(r.header.Get("Content-Type"))
	line, _, _ := bytes.Cut(bytes.TrimSpace(r.body), []byte("\n"))
	if kind != "text/plain" || !utf8.Valid(line) {
		return ""
	}
	return strings.ToValidUTF8(string(line[:min(len(line), maxWhy)]), "")
}

// refused answers a request that the server answered without success. A
// JSON-RPC error is the answer, unless the status says that it is not MCP that
// speaks: it stands for who may call, or whether the server is there.
func (l *Link) refused(msg *message, r *refusal, also string) {
	gate := r.status == http.StatusUnauthorized || r.status == http.StatusForbidden ||
		r.status == http.StatusTooManyRequests || r.status >= http.StatusInternalServerError
	if r.fault != nil && !gate {
		l.answer(r.fault, msg)
		return
	}
	f := &failure{outcome: unknown, status: r.status, auth: r.header.Get("WWW-Authenticate"),
		text: fmt.Sprintf("HTTP %d %s", r.status, http.StatusText(r.status))}
	if r.notExecutedStatus() {
		f.outcome = notExecuted
	}
	if r.status == http.StatusBadRequest && !msg.modern && !era.Known(msg.method) {
		f.code = jsonrpc.CodeMethodNotFound // some servers say no more of a method that they do not know
	}
	if why := r.why(); why != "" {
		f.text += ": " + why
	}
	if also != "" {
		f.text += "; " + also
	}
	l.fail(msg, f)
}
