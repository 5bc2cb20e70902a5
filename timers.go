package holdfast

import (
	"cmp"
	"time"
)

// Timers are all of a gateway's time-outs. Zero means the default. A negative
// value means "none" or "at once" where a field says so, and is refused or
// without sense elsewhere.
type Timers struct {
	Heartbeat      time.Duration // 15 s: a comment on each stream that was quiet for this long
	AnswerGrace    time.Duration // 100 ms: an answer within it goes back as JSON, a later one as an event stream; negative: every answer is a stream
	SessionTimeout time.Duration // 30 min: a session without a call in flight or a read stream ends after this
	ReconnectGrace time.Duration // 2 min: an HTTP+SSE session outlives its stream for this long; negative: not at all
	StartTimeout   time.Duration // 60 s: from a server's start to its answer to initialize
	StopTimeout    time.Duration // 5 s: for stopping a server's process tree
	WriteTimeout   time.Duration // 30 s: for each write of up to 64 KiB to a client
	ReadTimeout    time.Duration // 60 s: for a request's body to arrive
	Drain          time.Duration // 10 s: for calls in flight when the gateway stops; negative: none
	// QuestionTimeout, 10 min: how long a question of a handshake-era server to a
	// stateless client waits for its answer.
	QuestionTimeout time.Duration
	// ProbeTimeout, 2 s: how long a server may be silent to server/discover
	// before it is sent initialize, too.
	ProbeTimeout time.Duration
	// ReconnectWait, 30 s: how long a request waits for a remote server that
	// cannot be reached, and a call for its lost stream.
	ReconnectWait time.Duration

	// PingInterval, 30 s: a peer of the handshake era that was not heard for this
	// long, a client with an open stream or a server, is sent a ping. Negative:
	// no pings are sent. Those of others are answered at once in any case.
	PingInterval time.Duration
	// PingTimeout, 20 s: a ping not answered within it is missed. A late answer
	// is still a sign of life.
	PingTimeout time.Duration
	// PingMisses, 2: so many pings missed in a row count as silence.
	PingMisses int

	// RequestTimeout, 15 min: a call without progress of its own for this long is
	// cancelled, unless its server shows that it works. Pings do not count as
	// progress. Negative: none.
	RequestTimeout time.Duration
	// RequestMax, 1 h: a call is cancelled after this long, whatever it reports.
	// Negative: none.
	RequestMax time.Duration
	// OrphanGrace, 2 min: a call that nobody reads any more is cancelled after
	// this long, in the eras where it outlives its stream. Negative: at once.
	OrphanGrace time.Duration
	// TaskAfter, 10 s: a call that takes longer becomes a task, where its client
	// can take tasks (extension io.modelcontextprotocol/tasks). Negative: none does.
	TaskAfter time.Duration
	// ResultTTL, 10 min: an answer that was not delivered is kept for this long.
	ResultTTL time.Duration
	// AdoptWindow, 2 min: an equal call within this long of the loss of its first
	// one's reader is handed the answer that had ended undelivered. Negative:
	// only calls still running are adopted.
	AdoptWindow time.Duration
}

func (t Timers) withDefaults() Timers {
	return Timers{
		Heartbeat:      cmp.Or(t.Heartbeat, 15*time.Second),
		AnswerGrace:    cmp.Or(t.AnswerGrace, 100*time.Millisecond),
		SessionTimeout: cmp.Or(t.SessionTimeout, 30*time.Minute),
		ReconnectGrace: cmp.Or(t.ReconnectGrace, 2*time.Minute),
		StartTimeout:   cmp.Or(t.StartTimeout, time.Minute),
		StopTimeout:    cmp.Or(t.StopTimeout, 5*time.Second),
		WriteTimeout:   cmp.Or(t.WriteTimeout, 30*time.Second),
		ReadTimeout:    cmp.Or(t.ReadTimeout, time.Minute),
		Drain:          cmp.Or(t.Drain, 10*time.Second),

		QuestionTimeout: cmp.Or(t.QuestionTimeout, 10*time.Minute),
		ProbeTimeout:    cmp.Or(t.ProbeTimeout, 2*time.Second),
		ReconnectWait:   cmp.Or(t.ReconnectWait, 30*time.Second),

		PingInterval:   cmp.Or(t.PingInterval, 30*time.Second),
		PingTimeout:    cmp.Or(t.PingTimeout, 20*time.Second),
		PingMisses:     cmp.Or(t.PingMisses, 2),
		RequestTimeout: cmp.Or(t.RequestTimeout, 15*time.Minute),
		RequestMax:     cmp.Or(t.RequestMax, time.Hour),
		OrphanGrace:    cmp.Or(t.OrphanGrace, 2*time.Minute),
		TaskAfter:      cmp.Or(t.TaskAfter, 10*time.Second),
		ResultTTL:      cmp.Or(t.ResultTTL, 10*time.Minute),
		AdoptWindow:    cmp.Or(t.AdoptWindow, 2*time.Minute),
	}
}

// timers are the server's own, and the gateway's where the server has none.
// Only the fields that Server.Timers names can be a server's own.
func (s Server) timers(gateway Timers) Timers {
	own, t := s.Timers, gateway
	t.StartTimeout = cmp.Or(s.StartTimeout, t.StartTimeout)
	t.StopTimeout = cmp.Or(s.StopTimeout, t.StopTimeout)
	t.PingInterval = cmp.Or(own.PingInterval, t.PingInterval)
	t.PingTimeout = cmp.Or(own.PingTimeout, t.PingTimeout)
	t.PingMisses = cmp.Or(own.PingMisses, t.PingMisses)
	t.RequestTimeout = cmp.Or(own.RequestTimeout, t.RequestTimeout)
	t.RequestMax = cmp.Or(own.RequestMax, t.RequestMax)
	t.OrphanGrace = cmp.Or(own.OrphanGrace, t.OrphanGrace)
	t.TaskAfter = cmp.Or(own.TaskAfter, t.TaskAfter)
	return t
}
