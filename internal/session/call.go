package session

import (
	"bytes"
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/calls"
	"github.com/holdfast-mcp/holdfast/internal/conversation"
	"github.com/holdfast-mcp/holdfast/internal/ledger"
	"github.com/holdfast-mcp/holdfast/internal/observe"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Book is the ledger of the calls of one server's sessions.
type Book = calls.Book[*call]

// NewBook returns an empty book.
func NewBook(o ledger.Options) *Book {
	return calls.NewBook(o, (*call).orphaned, (*call).forgotten)
}

// call is one request of the client, on its way to its one answer. One that
// joined an earlier one is answered by that one's execution.
type call struct {
	conversation.Call // at the server; of a call that joined, only ID and Token count
	sess              *Session
	st                *Stream
	entry             *call // whose answer it gets, by the book: its own, mostly; nil: not in the book; guarded by sess.mu until the call is on its way
	keep              bool  // not cancelled for want of a reader; guarded by sess.mu
	handedOver        bool  // its answer is not the execution's; guarded by sess.mu
	asTask            bool  // its answer is a task of this session's
	began             time.Time
	params            []byte        // as they came, unless they are long
	spelled           *ledger.Print // of params that are not kept
	quiet             bool          // it wants no progress; who joins it may
	place             calls.Place
	task              *task                // that it executes
	awaits            *task                // whose result it asks for; guarded by sess.mu
	joined            atomic.Pointer[call] // whose request the server has; nil: its own, mostly

	// Of a root, guarded by its session's mu.
	heir  *call   // who gets what it says; nil: itself
	more  []*call // who get a copy
	over  bool
	final []byte // the answer, once over
}

func newCall(s *Session, st *Stream, m *jsonrpc.Message) *call {
	c := &call{sess: s, st: st, began: time.Now()}
	c.Peer, c.Data = s, c
	c.Of(m)
	id, token, params := m.Raw(jsonrpc.ID), token(m), m.Raw(jsonrpc.Params)
	if s.book == nil || len(params) > calls.MaxKept || !calls.Adoptable(c.Method()) {
		params = nil
	}
	own := make([]byte, 0, len(id)+len(token)+len(params)) // one piece for what outlives m
	own = append(append(append(own, id...), token...), params...)
	c.ID = own[:len(id):len(id)]
	if token != nil {
		c.Token = own[len(id) : len(id)+len(token) : len(id)+len(token)]
	}
	if c.quiet = token == nil && len(params) > 0; c.quiet {
		c.Token = quietToken
	}
	c.params = own[len(id)+len(token):]
	return c
}

// root returns whose request the server has.
func (c *call) root() *call {
	if r := c.joined.Load(); r != nil {
		return r
	}
	return c
}

// quietToken is under which a call that wants no progress is told of it.
var quietToken = []byte(`"hf"`)

// print returns what fingerprints the request, from what was kept of it.
func (c *call) print() ledger.Print {
	if c.spelled != nil {
		return *c.spelled
	}
	return calls.Fingerprint(c.Method(), c.params)
}

// Place implements calls.Owner.
func (c *call) Place() *calls.Place { return &c.place }

// Claim implements calls.Owner.
func (c *call) Claim() ledger.Claim {
	rules := c.sess.o.Rules(c.Name())
	return ledger.Claim{Principal: c.claimant().Caller, Print: c.print, Policy: rules.Policy(false)}
}

// Answer implements calls.Owner.
func (c *call) Answer() []byte { return c.final }

// currentLocked returns who gets what a root says.
func (c *call) currentLocked() *call {
	if c.heir != nil {
		return c.heir
	}
	return c
}

// enter enters the call in the book, and reports whether it is to be executed.
// If not, it has joined another call, or has been answered.
func (c *call) enter(m *jsonrpc.Message, header string) bool {
	s, book := c.sess, c.sess.book
	if book == nil || !calls.Adoptable(c.Method()) {
		return true
	}
	key, err := calls.Key(header, m)
	if err != nil {
		s.finish(c, jsonrpc.AppendError(nil, c.ID, jsonrpc.CodeInvalidRequest, err.Error(), []byte(`{"outcome":"not_executed"}`)))
		return false
	}
	rules := s.o.Rules(c.Name())
	c.asTask = s.o.Tasks != nil && s.wantsTask(m)
	who := c.claimant()
	claim := ledger.Claim{Principal: who.Caller, Key: key, KeyPrincipal: who.KeyHolder, Print: c.print, Policy: rules.Policy(key != "")}
	if len(c.params) == 0 { // none, or too long to be kept
		if key != "" { // it is fingerprinted now, and never again
			claim.Print = calls.Print(m)
		} else {
			p := calls.Spelled(m)
			c.spelled = &p
		}
	}
	var like calls.Likeness
	switch {
	case !s.identified: // on a pipe no connection is lost unnoticed
	case c.spelled != nil:
		like = calls.LikeSpelled(who.Caller, *c.spelled)
	default:
		like = calls.Like(who.Caller, m)
	}
	out, root, answer := book.Enter(claim, like, c)
	s.mu.Lock()
	if c.keep = rules.OnDisconnect == calls.Keep; out != ledger.Conflict {
		c.entry = root
	}
	s.mu.Unlock()
	switch out {
	case ledger.Joined:
		s.join(c, root, true)
	case ledger.Followed:
		s.join(c, root, false)
	case ledger.Replayed:
		s.log(c, "call answered by an earlier equal one", observe.Adopted)
		s.finish(c, calls.Readdress(answer, c.ID))
	case ledger.Conflict:
		s.finish(c, jsonrpc.AppendError(nil, c.ID, jsonrpc.CodeInvalidRequest, calls.ErrKey.Error(), []byte(`{"outcome":"not_executed"}`)))
	}
	if out != ledger.Conflict && !c.st.isRead() && !c.othersRead() {
		book.Lose(root) // the stream broke before the call was entered
	}
	return out == ledger.Fresh
}

// join makes c get what a root says, from the beginning as far as it is
// retained: in the place of who got it before, or beside it.
func (s *Session) join(c, root *call, instead bool) {
	o := root.sess
	o.mu.Lock()
	if root.over {
		final := root.final
		o.mu.Unlock()
		s.finish(c, calls.Readdress(final, c.ID))
		return
	}
	before := root.currentLocked()
	questions := before.replay(c)
	conv := o.conv
	c.joined.Store(root)
	switch {
	case !instead:
		root.more = append(root.more, c)
	case before == root:
		o.lendLocked(root)
		fallthrough
	default:
		root.heir = c
	}
	o.mu.Unlock()
	for _, q := range questions {
		if conv.Asks(q.Raw(jsonrpc.ID)) { // not answered yet
			c.hear(q)
		}
	}
	if !instead {
		return
	}
	s.log(c, "call joined the execution of an earlier equal one that nobody read", observe.Adopted)
	before.sess.mu.Lock()
	before.handedOver = true
	before.sess.mu.Unlock()
	before.sess.finish(before, jsonrpc.AppendError(nil, before.ID, CodeCancelled,
		"a later equal request has taken this call over", []byte(`{"outcome":"adopted"}`)))
}

// replay gives c what a call has said so far, and returns what it has asked.
// The root's session is locked, so that nothing is said meanwhile.
func (before *call) replay(c *call) (questions []*jsonrpc.Message) {
	alone := before.st.alone
	events, _, _ := before.st.log.Read(nil, 0, 1<<30)
	for _, e := range events {
		m, err := jsonrpc.Parse(e.Data)
		if err != nil {
			continue
		}
		switch {
		case m.Is("notifications/progress"):
			if !bytes.Equal(m.Raw(jsonrpc.Token), before.Token) {
				continue
			}
		case m.Kind() == jsonrpc.Request:
			questions = append(questions, m)
			continue
		case m.Kind() != jsonrpc.Notification || !alone:
			continue
		}
		c.hear(m)
	}
	return questions
}

// hear gives a call that joined another one a message of that one.
func (c *call) hear(m *jsonrpc.Message) {
	log := &c.st.log
	if !c.st.events && c.st != &c.sess.general {
		log = &c.sess.general.log
	}
	if m.Is("notifications/progress") {
		if c.Token != nil && !c.quiet {
			log.Append(m.Append(nil, jsonrpc.Edit{Field: jsonrpc.Token, With: c.Token}), false)
		}
		return
	}
	log.Append(m.Append(nil), false)
}

// Message implements conversation.Peer: a message goes to one stream only
// (2025-11-25 basic/transports, "Multiple Connections").
func (s *Session) Message(of *conversation.Call, msg []byte) {
	s.mu.Lock()
	defer s.mu.Unlock() // appended with the lock held: who joins must miss nothing
	if of == nil {
		if !s.strayLocked(msg) {
			s.generalLocked(msg)
		}
		return
	}
	c := of.Data.(*call)
	if c.task != nil {
		c.task.hearLocked(msg)
		return
	}
	if c.heir == nil && len(c.more) == 0 && !c.quiet {
		s.streamForLocked(c).log.Append(msg, false)
		return
	}
	m, err := jsonrpc.Parse(msg)
	if err != nil {
		return
	}
	if c.heir == nil && !(c.quiet && m.Is("notifications/progress")) {
		s.streamForLocked(c).log.Append(msg, false)
	}
	if c.heir != nil {
		c.heir.hear(m)
	}
	for _, f := range c.more {
		f.hear(m)
	}
}

// generalLocked takes a message that names no call. If the client has gone, and
// another session's waits for one that runs here, it is for that one.
func (s *Session) generalLocked(msg []byte) {
	st := s.streamForLocked(nil)
	if st.reader == nil {
		for root := range s.lent {
			if m, err := jsonrpc.Parse(msg); err == nil {
				root.heir.hear(m)
				return
			}
		}
	}
	st.log.Append(msg, false)
}

// Answer implements conversation.Peer.
func (s *Session) Answer(of *conversation.Call, msg []byte) {
	c := of.Data.(*call)
	if of.Is("initialize") {
		s.negotiated(msg)
	}
	if s.o.Tasks != nil && (of.Is("initialize") || of.Is("tools/list")) {
		msg = s.offerTasks(of.Method(), msg)
	}
	state := ledger.Lost
	switch cause := of.Cause; {
	case cause == "" || cause == observe.Answered:
		state = ledger.Answered
	case !of.Sent(): // not executed: its key may be used again
		state = ledger.Cancelled
	case cause == observe.RequestIdle || cause == observe.RequestMaximum:
		state = ledger.TimedOut
	}
	if state == ledger.Lost || state == ledger.Cancelled { // time-outs are told of where their clocks are
		s.log(c, "call ended", of.Cause)
	} else if state == ledger.Answered && s.o.Log.Enabled(context.Background(), slog.LevelDebug) {
		s.log(c, "call ended", observe.Answered)
	}
	c.end(state, msg)
}

// end ends a root, and answers all that wait for it.
func (c *call) end(state ledger.State, msg []byte) {
	s := c.sess
	s.mu.Lock()
	if c.over {
		s.mu.Unlock()
		return
	}
	c.over = true
	if c.entry != nil {
		c.final = msg
	}
	to, more := c.currentLocked(), c.more
	c.more = nil
	s.mu.Unlock()
	if c.entry != nil {
		s.book.End(c, state)
	}
	if to == c {
		s.finish(c, msg)
	} else {
		to.sess.finish(to, calls.Readdress(msg, to.ID))
		s.returned(c)
	}
	for _, f := range more {
		f.sess.finish(f, calls.Readdress(msg, f.ID))
	}
}

// lendLocked notes that another session's client waits for a call.
func (s *Session) lendLocked(root *call) {
	if s.lent == nil {
		s.lent = map[*call]bool{}
	}
	s.lent[root] = true
}

// returned says that such a call is over: a session that ended meanwhile leaves
// its conversation with the last.
func (s *Session) returned(root *call) {
	s.mu.Lock()
	delete(s.lent, root)
	s.mu.Unlock()
	s.leaveUnlessLent()
}

// giveUp ends what a client wanted of a call: the execution is cancelled, if
// nobody else waits for it. m is the client's notification. It reports false if
// the answer is on its way already.
func (c *call) giveUp(m *jsonrpc.Message) bool {
	root := c.root()
	o := root.sess
	o.mu.Lock()
	passed := false
	switch {
	case root.over:
		o.mu.Unlock()
		return false
	case c.awaits != nil:
		c.awaits.forsakeLocked(c)
		passed = true
	case root.currentLocked() != c: // one of those that get a copy
		for i, f := range root.more {
			if f == c {
				root.more = append(root.more[:i], root.more[i+1:]...)
				passed = true
				break
			}
		}
	case len(root.more) > 0:
		root.heir, root.more = root.more[0], root.more[1:]
		passed = true
		if c == root {
			o.lendLocked(root)
		}
	}
	conv := o.conv
	o.mu.Unlock()
	if passed {
		return true
	}
	if conv == nil || !conv.Cancel(&root.Call, m) {
		return false
	}
	o.mu.Lock()
	root.over = true
	o.mu.Unlock()
	if root.entry != nil {
		o.book.End(root, ledger.Cancelled)
	}
	if c != root {
		o.returned(root)
	}
	return true
}

// orphaned cancels a root that nobody has read for its grace. Who comes back
// finds an error that says so.
func (c *call) orphaned() {
	s := c.sess
	s.mu.Lock()
	to := c.currentLocked()
	s.mu.Unlock()
	if to.st.isRead() { // it was found again just now
		return
	}
	const text = "the call was cancelled: nobody read its stream for the orphan grace (--orphan-grace, or on_disconnect: keep for the tool)"
	if !to.giveUp(conversation.Cancelled("nobody reads the call any more (orphan grace)")) {
		return
	}
	s.log(to, "call cancelled", observe.OrphanGrace)
	to.sess.finish(to, jsonrpc.AppendError(nil, to.ID, CodeCancelled, text, []byte(`{"outcome":"unknown"}`)))
}

// forgotten frees an answer that is no longer kept for its client.
func (c *call) forgotten() {
	s := c.sess
	s.mu.Lock()
	to := c.currentLocked()
	s.mu.Unlock()
	to.sess.drop(to.st)
}

// log tells what became of a call.
func (s *Session) log(c *call, what string, cause observe.Cause) {
	if s.o.Observe == nil {
		return
	}
	e := observe.Ended(observe.Call, cause)
	e.Text, e.Session, e.ID, e.Method, e.Age = what, Short(s.ID), string(c.ID), c.root().What(), time.Since(c.root().began)
	s.o.Observe(e)
}
