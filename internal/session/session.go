// Package session is one client of the handshake era: its streams, its calls and its idle clock.
//
// A session outlives connections. What is meant for its client is written into
// logs; connections read them, and may come and go.
package session

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-mcp/holdfast/eventlog"
	"github.com/holdfast-mcp/holdfast/internal/conversation"
	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/internal/observe"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Causes of a session's or a reader's end. Match with errors.Is.
var (
	ErrDeleted    = errors.New("session: deleted by the client")
	ErrIdle       = errors.New("session: idle")
	ErrAbandoned  = errors.New("session: the client did not come back")
	ErrEvicted    = errors.New("session: the client was away and its place was needed")
	ErrShutdown   = errors.New("session: the gateway is shutting down")
	ErrSuperseded = errors.New("session: superseded by another reader")
	ErrRotated    = errors.New("session: closed before the path would")
	ErrNoServer   = errors.New("session: the server is gone")
)

// CauseOf is the cause, of the closed list, that a session's or a reader's end
// has; "" for an error of the connection, and for nil.
func CauseOf(err error) observe.Cause {
	for _, c := range []struct {
		err   error
		cause observe.Cause
	}{
		{ErrDeleted, observe.Deleted}, {ErrIdle, observe.SessionIdle}, {ErrAbandoned, observe.Abandoned}, {ErrEvicted, observe.Evicted},
		{ErrShutdown, observe.Drain}, {ErrSuperseded, observe.Superseded}, {ErrRotated, observe.Rotation},
	} {
		if errors.Is(err, c.err) {
			return c.cause
		}
	}
	if errors.Is(err, ErrNoServer) {
		return conversation.CauseOf(err)
	}
	return ""
}

// StreamCause is why the gateway ended a stream of the session, as Reader.Run
// returned; "" if it was the connection that failed.
func (s *Session) StreamCause(err error) observe.Cause {
	if err == nil {
		return cmp.Or(CauseOf(s.Err()), observe.Answered)
	}
	return CauseOf(err)
}

// Conversation is what a session needs of its server.
type Conversation interface {
	Call(call *conversation.Call, m *jsonrpc.Message) error
	Notify(p conversation.Peer, m *jsonrpc.Message) error
	Reply(p conversation.Peer, m *jsonrpc.Message)
	Cancel(call *conversation.Call, m *jsonrpc.Message) bool
	Asks(id []byte) bool
}

// Limits bounds what a session retains.
type Limits struct {
	Stream  eventlog.Limits // of each stream
	Unread  int             // bytes of answers that nobody has read; 0: 64 MiB
	Streams int             // finished streams retained for resumption; 0: 32
	Open    int             // streams read at once; 0: 32
}

func (l Limits) withDefaults() Limits {
	if l.Unread == 0 {
		l.Unread = 64 << 20
	}
	if l.Streams == 0 {
		l.Streams = 32
	}
	if l.Open == 0 {
		l.Open = 32
	}
	return l
}

// Who is who a session's client is, as far as it can be told.
type Who struct {
	Caller    string // whose orphaned calls it may join; of one session only, mostly
	KeyHolder string // whose idempotency keys are its own
}

// Session is safe for concurrent use.
type Session struct {
	ID     string
	single bool // all goes to the general stream: HTTP+SSE, stdio
	o      *RegistryOptions
	opened time.Time
	limits Limits
	book   *Book // nil: calls are not entered

	general Stream // messages that belong to no POST

	mu         sync.Mutex // guards the fields below
	conv       Conversation
	leave      func(reason string) // leaves the conversation
	version    era.Version         // "" until negotiated
	started    bool                // initialize was sent
	opening    string              // see Opening; "" once more was said
	who        Who
	identified bool // by its connections
	calls      map[string]*call
	pulse      pulse
	desk       *desk              // of tasks; nil: the gateway offers none
	lent       map[*call]bool     // calls of this conversation that another session's client waits for
	streams    map[uint64]*Stream // that have given out event ids
	posts      []*Stream          // with unanswered calls, oldest first
	lastPost   uint64
	readers    int       // attached now, of any stream
	parked     []*Reader // of the general stream, waiting for their turn
	used       time.Time // when the client was last heard, or a reader left
	ended      error     // why the session is over
	done       chan struct{}
}

var _ conversation.Peer = (*Session)(nil)

// newSession returns a session without a conversation.
func newSession(id string, single bool, o *RegistryOptions) *Session {
	s := &Session{ID: id, single: single, o: o, limits: o.Limits.withDefaults(), book: o.Book, opened: time.Now(), used: time.Now(), done: make(chan struct{})}
	s.who = s.only()
	s.general.sess = s
	s.general.log.SetLimits(s.limits.Stream)
	return s
}

// Attach gives the session its conversation. leave ends the session's part in
// it; it is called once, without the session's lock.
func (s *Session) Attach(c Conversation, leave func(reason string)) error {
	s.mu.Lock()
	if ended := s.ended; ended != nil {
		s.mu.Unlock()
		leave(ended.Error())
		return ended
	}
	s.conv, s.leave = c, leave
	s.mu.Unlock()
	return nil
}

// Attached reports whether the session has its conversation.
func (s *Session) Attached() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conv != nil
}

// Begin claims the session's one initialize: true the first time only.
func (s *Session) Begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.started
	s.started = true
	return first
}

// Identify says who the client is; without it, it is nobody but this session.
func (s *Session) Identify(who Who) {
	s.mu.Lock()
	s.identified = true
	if who.Caller != "" {
		s.who.Caller = who.Caller
	}
	s.who.KeyHolder = who.KeyHolder
	s.mu.Unlock()
}

// Version returns the negotiated version, "" before there is one.
func (s *Session) Version() era.Version {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// Done is closed when the session is over; Err tells why.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err returns why the session is over, nil while it is not.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// touch notes that the client was heard.
func (s *Session) touch() { s.used = time.Now() }

// Touch notes that the client was heard.
func (s *Session) Touch() {
	s.mu.Lock()
	s.heardLocked()
	s.mu.Unlock()
}

// quietFor returns how long nothing held the session, 0 while a call runs or,
// if streams count, a stream is read.
func (s *Session) quietFor(now time.Time, streamsCount bool) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readers > 0 || streamsCount && len(s.calls) > 0 {
		return 0
	}
	return now.Sub(s.used)
}

// InFlight returns how many calls are running.
func (s *Session) InFlight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls)
}

// End ends the session: each running call is answered with an error and
// cancelled at the server, and the streams end once what they hold is
// delivered. It reports whether this call did it.
func (s *Session) End(cause error) bool {
	s.mu.Lock()
	if s.ended != nil {
		s.mu.Unlock()
		return false
	}
	s.ended = cause
	running, parked := s.calls, s.parked
	s.calls, s.parked = nil, nil
	s.mu.Unlock()
	s.endCalls(running, cause)
	s.closeTasks()
	s.leaveUnlessLent()
	s.mu.Lock()
	for _, r := range parked {
		r.stopLocked(cause)
	}
	named, posts := s.streams, s.posts
	s.streams, s.posts = nil, nil
	s.closeLocked(&s.general)
	for _, st := range named {
		s.closeLocked(st)
	}
	s.mu.Unlock()
	for _, st := range posts {
		st.log.End() // the POST that waits for it frees it
	}
	close(s.done)
	return true
}

// leaveUnlessLent leaves the conversation of a session that is over, once
// nobody else waits for what is executed there.
func (s *Session) leaveUnlessLent() {
	s.mu.Lock()
	ended, leave := s.ended, s.leave
	if ended == nil || len(s.lent) > 0 {
		leave = nil
	} else {
		s.leave = nil
	}
	s.mu.Unlock()
	if leave != nil {
		leave(ended.Error())
	}
}

// endCalls cancels the calls of a session that is over, and answers them.
func (s *Session) endCalls(running map[string]*call, cause error) {
	if len(running) == 0 {
		return
	}
	note := conversation.Cancelled(cause.Error())
	for _, c := range running {
		c.giveUp(note)
		// An answer that came just now finds the call gone.
		s.settle(c, jsonrpc.AppendError(nil, c.ID, CodeEnded, cause.Error(), []byte(`{"outcome":"unknown"}`)))
	}
}

// CodeEnded answers a call whose session ended.
const CodeEnded = -32000

// closeLocked ends a stream: now, or when its reader, or the POST that is just
// about to read it, has delivered the rest.
func (s *Session) closeLocked(st *Stream) {
	if st.reader == nil && !st.posting {
		st.log.Release()
	} else {
		st.log.End()
	}
}

// Gone implements conversation.Peer.
func (s *Session) Gone(err error) { s.End(fmt.Errorf("%w: %w", ErrNoServer, err)) }
