package cli

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/internal/config"
)

func (f *flags) streamTimes(s *pflag.FlagSet) {
	t := &f.timers
	s.DurationVar(&t.Heartbeat, "heartbeat", 15*time.Second, "longest silence on an open stream; then a comment is sent")
	s.DurationVar(&t.AnswerGrace, "answer-grace", 100*time.Millisecond, "an answer within it is one JSON body, a later one an event stream")
	s.DurationVar(&t.SessionTimeout, "session-timeout", 30*time.Minute, "a session without a call or an open stream ends after it")
	s.DurationVar(&t.ReconnectGrace, "reconnect-grace", 2*time.Minute, "an HTTP+SSE session waits so long for its stream to be opened again")
	s.DurationVar(&t.WriteTimeout, "write-timeout", 30*time.Second, "for each write to a client; one that does not read loses its stream")
	s.DurationVar(&t.Drain, "drain", 10*time.Second, "for calls in flight after SIGTERM or SIGINT, or the end of stdin")
}

func (f *flags) callTimes(s *pflag.FlagSet) {
	t := &f.timers
	s.DurationVar(&t.RequestTimeout, "request-timeout", 15*time.Minute, "a call without progress ends after it, unless its server is seen to work; 0: never")
	s.DurationVar(&t.RequestMax, "request-max", time.Hour, "a call ends after it, whatever it reports; 0: never")
	s.DurationVar(&t.OrphanGrace, "orphan-grace", 2*time.Minute, "a call that nobody reads any more is cancelled after it; 0: at once")
	s.DurationVar(&t.TaskAfter, "task-after", 10*time.Second, "a call becomes a task after it, where its client can take tasks; 0: never")
	s.DurationVar(&t.ResultTTL, "result-ttl", 10*time.Minute, "an answer that was not delivered is kept for it")
	s.DurationVar(&t.AdoptWindow, "adopt-window", 2*time.Minute, "so long after a cut an equal call gets the answer that was missed; 0: never")
	s.DurationVar(&t.QuestionTimeout, "question-timeout", 10*time.Minute, "a server's question waits so long for a stateless client's answer")
}

func (f *flags) liveness(s *pflag.FlagSet) {
	t := &f.timers
	s.DurationVar(&t.PingInterval, "ping-interval", 30*time.Second, "a client with an open stream, or a server, that was silent for it is sent a ping; 0: none")
	s.DurationVar(&t.PingTimeout, "ping-timeout", 20*time.Second, "a ping without an answer is missed after it")
	s.IntVar(&t.PingMisses, "ping-misses", 2, "`number` of pings missed in a row that count as silence")
	s.DurationVar(&t.ProbeTimeout, "probe-timeout", 2*time.Second, "a server may be silent to server/discover for so long before it is sent initialize, too")
}

// checkTimers refuses what makes no sense, and turns zeros that were asked for
// into the library's word for none.
func (f *flags) checkTimers() error {
	t := &f.timers
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"heartbeat", t.Heartbeat},
		{"session-timeout", t.SessionTimeout},
		{"start-timeout", t.StartTimeout},
		{"stop-timeout", t.StopTimeout},
		{"write-timeout", t.WriteTimeout},
		{"question-timeout", t.QuestionTimeout},
		{"probe-timeout", t.ProbeTimeout},
		{"reconnect-wait", t.ReconnectWait},
		{"ping-timeout", t.PingTimeout},
		{"result-ttl", t.ResultTTL},
	} {
		if d.value < time.Millisecond {
			return usage("--%s: %s is too short, give it at least 1ms", d.name, d.value)
		}
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
	}{
		{"answer-grace", &t.AnswerGrace},
		{"drain", &t.Drain},
		{"reconnect-grace", &t.ReconnectGrace},
		{"ping-interval", &t.PingInterval},
		{"request-timeout", &t.RequestTimeout},
		{"request-max", &t.RequestMax},
		{"orphan-grace", &t.OrphanGrace},
		{"task-after", &t.TaskAfter},
		{"adopt-window", &t.AdoptWindow},
	} {
		switch {
		case *d.value < 0:
			return usage("--%s: %s must not be negative", d.name, *d.value)
		case *d.value > 0 && *d.value < time.Millisecond:
			return usage("--%s: %s is too short, give it at least 1ms, or 0", d.name, *d.value)
		}
		*d.value = orNone(*d.value)
	}
	if t.PingMisses < 1 {
		return usage("--ping-misses must be at least 1")
	}
	return nil
}

// mergeTimers takes from the file what no flag says.
func (f *flags) mergeTimers(set *pflag.FlagSet, file *config.File) {
	t := &f.timers
	take(set, "heartbeat", &t.Heartbeat, file.Heartbeat)
	take(set, "answer-grace", &t.AnswerGrace, file.AnswerGrace)
	take(set, "session-timeout", &t.SessionTimeout, file.SessionTimeout)
	take(set, "reconnect-grace", &t.ReconnectGrace, file.ReconnectGrace)
	take(set, "write-timeout", &t.WriteTimeout, file.WriteTimeout)
	take(set, "drain", &t.Drain, file.Drain)
	take(set, "request-timeout", &t.RequestTimeout, file.RequestTimeout)
	take(set, "request-max", &t.RequestMax, file.RequestMax)
	take(set, "orphan-grace", &t.OrphanGrace, file.OrphanGrace)
	take(set, "task-after", &t.TaskAfter, file.TaskAfter)
	take(set, "result-ttl", &t.ResultTTL, file.ResultTTL)
	take(set, "adopt-window", &t.AdoptWindow, file.AdoptWindow)
	take(set, "question-timeout", &t.QuestionTimeout, file.QuestionTimeout)
	take(set, "ping-interval", &t.PingInterval, file.PingInterval)
	take(set, "ping-timeout", &t.PingTimeout, file.PingTimeout)
	take(set, "ping-misses", &t.PingMisses, file.PingMisses)
	take(set, "probe-timeout", &t.ProbeTimeout, file.ProbeTimeout)
	take(set, "reconnect-wait", &t.ReconnectWait, file.ReconnectWait)
}

// serverTimers are a server's own, but for those that a flag sets for all.
func serverTimers(set *pflag.FlagSet, c config.Clocks) holdfast.Timers {
	return holdfast.Timers{
		PingInterval:   unlessGiven(set, "ping-interval", c.PingInterval),
		PingTimeout:    unlessGiven(set, "ping-timeout", c.PingTimeout),
		PingMisses:     unlessGiven(set, "ping-misses", c.PingMisses),
		RequestTimeout: unlessGiven(set, "request-timeout", c.RequestTimeout),
		RequestMax:     unlessGiven(set, "request-max", c.RequestMax),
		OrphanGrace:    unlessGiven(set, "orphan-grace", c.OrphanGrace),
		TaskAfter:      unlessGiven(set, "task-after", c.TaskAfter),
	}
}

// tools are what the file says of a server's, but for what a flag sets for all.
func tools(set *pflag.FlagSet, entries []config.Tool) []holdfast.Tool {
	var all []holdfast.Tool
	for _, e := range entries {
		all = append(all, holdfast.Tool{
			Name: e.Name, Adopt: holdfast.Adopt(e.Adopt), OnDisconnect: holdfast.OnDisconnect(e.OnDisconnect),
			RequestTimeout: unlessGiven(set, "request-timeout", e.RequestTimeout),
			RequestMax:     unlessGiven(set, "request-max", e.RequestMax),
			OrphanGrace:    unlessGiven(set, "orphan-grace", e.OrphanGrace),
			Task:           holdfast.TaskMode(e.Task),
			TaskAfter:      unlessGiven(set, "task-after", e.TaskAfter),
		})
	}
	return all
}

// unlessGiven returns what the file has where the flag is not on the command
// line, else zero.
func unlessGiven[T any](set *pflag.FlagSet, name string, file T) T {
	var zero T
	if set.Changed(name) {
		return zero
	}
	return file
}
