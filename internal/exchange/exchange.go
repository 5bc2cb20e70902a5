// Package exchange serves requests of the stateless era, whichever era the server behind speaks.
//
// A server of the stateless era gets them as they are, all over one process. For
// a server of the handshake era the gateway holds conversations on the clients'
// behalf: one handshake for each set of declared capabilities and principal,
// kept warm and found again, so that a server which keeps state keeps it. Its
// questions become input_required results, and the client's retry goes on with
// the same execution.
package exchange

import (
	"bytes"
	"crypto/cipher"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/calls"
	"github.com/holdfast-mcp/holdfast/internal/conversation"
	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/internal/ledger"
	"github.com/holdfast-mcp/holdfast/internal/observe"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Options of a Host. All fields are needed.
type Options struct {
	Pool            *conversation.Pool
	Name            string        // the server's, for logs and errors
	Patience        time.Duration // how long a server may be silent to server/discover before it is greeted, too
	StartTimeout    time.Duration // for a handshake
	QuestionTimeout time.Duration // how long a question waits for its answer
	Idle            time.Duration // a conversation that nobody used for this long ends
	MaxWaiting      int           // calls that may wait for a conversation
	Seal            cipher.AEAD   // protects requestState
	Log             *slog.Logger

	// For calls that may outlive their request; without Rules there are none.
	Ledger  ledger.Options
	Rules   func(tool string) calls.Rules
	Observe func(observe.Event) // nil: nobody is told
	// Tasks says which calls become tasks; nil: none. What is left of them is
	// kept for Ledger.TTL after their end.
	Tasks func(tool string) TaskRule
}

// Request is one request of a stateless client.
type Request struct {
	Principal string           // who asks, as far as it is known
	Message   *jsonrpc.Message // not kept
	// Emit takes what the request is answered with: any number of
	// notifications, then the answer, which is final. It must not block. After
	// the request was cancelled it is not called.
	Emit func(msg []byte, final bool)
	// Begun, unless nil, is told once that a server has the request, which may
	// have had to be started. It must not block, and is not told of what needs
	// no server.
	Begun func()
	// Receipt, unless nil, is told what becomes of the connection. Without it the
	// call ends with cancel in any case.
	Receipt *Receipt
	// Caller tells whose calls without a key it may join, "" for nobody's; nil for
	// nobody's. It is asked for at once, or not at all.
	Caller func() string
	Key    string // the idempotency key that came beside the message, "" for none
}

// Failure is a request that is answered before any server sees it.
type Failure struct {
	Code    int
	Text    string
	Data    []byte // raw JSON, nil for none
	NotHere bool   // the method does not exist in this era
}

// Error implements error.
func (f *Failure) Error() string { return f.Text }

// Answer returns the failure as a JSON-RPC error answer.
func (f *Failure) Answer(id []byte) []byte {
	return jsonrpc.AppendError(nil, id, f.Code, f.Text, f.Data)
}

// Host serves the stateless requests to one server. Safe for concurrent use.
type Host struct {
	o         Options
	inFlight  atomic.Int64
	present   atomic.Int64 // inFlight, and the subscriptions
	used      atomic.Int64 // when a request last ended, in nanoseconds since 1970
	queue     queue        // calls that wait for a conversation
	book      *calls.Book[*held]
	jobs      *calls.Shelf[*job] // the tasks
	unfetched calls.Unfetched

	mu       sync.Mutex    // guards the fields below
	direct   *direct       // to a stateless server
	retiring chan struct{} // closed once a direct that was given up has gone
	groups   map[[32]byte]*group
	runs     map[string]*run // suspended, by the id in their requestState
	closed   bool
}

// New returns a Host.
func New(o Options) *Host {
	h := &Host{o: o, jobs: calls.NewShelf[*job](), groups: map[[32]byte]*group{}, runs: map[string]*run{}}
	if o.Rules != nil {
		h.book = calls.NewBook(o.Ledger, (*held).orphaned, func(*held) {})
	}
	h.queue.h = h
	return h
}

// Serve begins to serve a request, and returns what cancels it. The failure, if
// there is one, is the answer.
func (h *Host) Serve(req Request) (cancel func(reason string), fail *Failure) {
	c, fail := parse(req)
	if fail != nil {
		return nil, fail
	}
	if done, fail := h.aboutTask(c); done {
		return func(string) {}, fail
	}
	hearer, fail := h.hear(c)
	if fail != nil {
		return nil, fail
	}
	j, fail := h.promise(&req, c)
	if fail != nil {
		return nil, fail
	}
	stop, fail, ok := h.hold(req, c)
	switch {
	case fail != nil:
		return nil, fail
	case !ok:
		stop = h.execute(c)
	}
	switch {
	case j != nil:
		j.begun(stop)
		return j.guard(stop), nil
	case hearer != nil:
		return func(reason string) { hearer.leave(); stop(reason) }, nil
	}
	return stop, nil
}

// execute has a request executed, and returns what cancels it.
func (h *Host) execute(c *asked) (cancel func(reason string)) {
	c.host = h
	h.present.Add(1) // before the way is looked up, or that might be given up meanwhile
	if c.method != "subscriptions/listen" {
		h.inFlight.Add(1)
	}
	var stop func(reason string)
	if d := h.knownDirect(); d != nil {
		stop = d.serve(c)
	} else {
		c.keep()
		t := &errand{call: c}
		stop = t.cancel
		go h.find(t) // ends once the request is on its way, or has failed
	}
	return func(reason string) {
		if c.over() { // else it has its answer, and stop may be about a later request
			if c.method != "subscriptions/listen" {
				h.tell("call cancelled", c.method, observe.ClientCancelled)
			}
			stop(reason)
		}
	}
}

// InFlight returns how many requests are being served, subscriptions aside.
func (h *Host) InFlight() int { return int(h.inFlight.Load()) }

// asked is a request taken apart. Its id and token are its own; the rest aliases
// the message, until keep.
type asked struct {
	host         *Host       // that counts it
	ended        atomic.Bool // answered or cancelled: nothing may follow
	method       string
	id           []byte
	token        []byte
	client       []byte // clientInfo, nil for none
	capabilities []byte
	level        string
	principal    string
	message      *jsonrpc.Message
	emit         func(msg []byte, final bool)
	begun        func()
	told         atomic.Bool // begun has been told
	kept         bool        // the message is its own
	declared     bool        // it was sent again, for the gateway to take a task
	job          *job        // that the call is, if it may become a task
	shared       bool        // others may wait for the same execution
}

// keep makes all of the request its own.
func (a *asked) keep() {
	if a.kept {
		return
	}
	a.kept = true
	a.message = a.message.Clone()
	a.client, a.capabilities = a.message.Raw(jsonrpc.MetaClient), a.message.Raw(jsonrpc.MetaCapabilities)
}

// over ends the request, and reports whether it had not ended before.
func (a *asked) over() bool {
	if a.ended.Swap(true) {
		return false
	}
	if a.method != "subscriptions/listen" {
		a.host.inFlight.Add(-1)
	}
	a.host.used.Store(time.Now().UnixNano())
	a.host.present.Add(-1)
	return true
}

// sent says that a server has the request.
func (a *asked) sent() {
	if a.begun != nil && !a.told.Swap(true) { // a call may be sent more than once
		a.begun()
	}
}

// answer gives the client the answer, unless it has one or wants none.
func (a *asked) answer(msg []byte) {
	if a.over() {
		a.emit(msg, true)
	}
}

// note gives the client a notification, unless the request has ended.
func (a *asked) note(msg []byte) {
	if !a.ended.Load() {
		a.emit(msg, false)
	}
}

// maxIdentity bounds, in bytes, what a client says of itself.
const maxIdentity = 64 << 10

// levels are the severities of log messages, least first.
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// parse checks what every stateless request must say (2026-07-28 basic,
// "_meta").
func parse(req Request) (*asked, *Failure) {
	m := req.Message
	a := &asked{method: string(m.Text(jsonrpc.Method)), id: bytes.Clone(m.Raw(jsonrpc.ID)), principal: req.Principal, message: m, emit: req.Emit, begun: req.Begun}
	version := era.Version(m.Text(jsonrpc.MetaVersion))
	a.client, a.capabilities = m.Raw(jsonrpc.MetaClient), m.Raw(jsonrpc.MetaCapabilities)
	if raw := m.Raw(jsonrpc.MetaToken); len(raw) > 0 && raw[0] != '{' && raw[0] != '[' && raw[0] != 'n' && raw[0] != 't' && raw[0] != 'f' {
		a.token = bytes.Clone(raw)
	}
	switch {
	case version == "":
		return nil, &Failure{Code: jsonrpc.CodeInvalidParams, Text: "params._meta must hold " + era.MetaVersion}
	case !slices.Contains(era.StatelessVersions(), version):
		return nil, unsupported(version)
	case len(a.capabilities) == 0 || a.capabilities[0] != '{':
		return nil, &Failure{Code: jsonrpc.CodeInvalidParams, Text: "params._meta must hold " + era.MetaCapabilities + ", an object"}
	case len(a.client)+len(a.capabilities) > maxIdentity: // they are kept for as long as a conversation is
		return nil, &Failure{Code: jsonrpc.CodeInvalidParams, Text: fmt.Sprintf("clientInfo and clientCapabilities are longer than %d bytes", maxIdentity)}
	case era.Removed(a.method):
		return nil, &Failure{Code: jsonrpc.CodeMethodNotFound, Text: fmt.Sprintf("method %.60q does not exist in revision %s", a.method, version), NotHere: true}
	}
	if raw := m.Raw(jsonrpc.MetaLogLevel); raw != nil {
		if len(raw) > 2 {
			a.level = string(raw[1 : len(raw)-1])
		}
		if !slices.Contains(levels, a.level) {
			return nil, &Failure{Code: jsonrpc.CodeInvalidParams, Text: fmt.Sprintf("%s: %.40s is no log level", era.MetaLogLevel, raw)}
		}
	}
	return a, nil
}

// unsupported names the stateless revisions that are served.
func unsupported(version era.Version) *Failure {
	data := []byte(`{"supported":[`)
	for i, v := range era.StatelessVersions() {
		if i > 0 {
			data = append(data, ',')
		}
		data = jsonrpc.AppendString(data, string(v))
	}
	data = jsonrpc.AppendString(append(data, `],"requested":`...), string(version))
	return &Failure{Code: era.CodeUnsupportedVersion, Text: fmt.Sprintf("unsupported protocol version %.40q", version), Data: append(data, '}')}
}

// fail answers a request with an error.
func (a *asked) fail(code int, text, data string) {
	var raw []byte
	if data != "" {
		raw = []byte(data)
	}
	a.answer(jsonrpc.AppendError(nil, a.id, code, text, raw))
}

// errand is a request whose way is being found.
type errand struct {
	call *asked

	mu        sync.Mutex // guards the fields below
	cancelled bool
	reason    string
	stop      func(reason string)
}

// cancel gives the request up, wherever it is.
func (t *errand) cancel(reason string) {
	t.mu.Lock()
	t.cancelled, t.reason = true, reason
	stop := t.stop
	t.mu.Unlock()
	if stop != nil {
		stop(reason)
	}
}

// begun says how the request is cancelled from now on.
func (t *errand) begun(stop func(reason string)) {
	t.mu.Lock()
	t.stop = stop
	gone, reason := t.cancelled, t.reason
	t.mu.Unlock()
	if gone && stop != nil {
		stop(reason)
	}
}

func (t *errand) gone() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cancelled
}

// find finds out what the server speaks, and sends the request its way.
func (h *Host) find(t *errand) {
	h.retired()
	conv, err := h.o.Pool.Stateless(h.o.Patience)
	if err != nil {
		t.call.fail(jsonrpc.CodeInternal, err.Error(), `{"outcome":"not_executed"}`)
		return
	}
	var d *direct
	if conv != nil {
		d = h.adopt(conv)
	}
	switch {
	case t.gone():
	case d == nil:
		h.bridge(t)
	default:
		t.begun(d.serve(t.call))
	}
}

// Close ends all conversations that are held for stateless clients.
func (h *Host) Close(reason error) {
	if h.book != nil {
		h.book.Close()
	}
	h.closeJobs()
	h.mu.Lock()
	h.closed = true
	groups, runs, d := h.groups, h.runs, h.direct
	h.groups, h.runs = map[[32]byte]*group{}, map[string]*run{}
	h.mu.Unlock()
	if d != nil {
		d.close()
	}
	for _, r := range runs {
		r.expire(reason.Error())
	}
	for _, g := range groups {
		g.close(reason)
	}
	h.queue.dispatch()
}
