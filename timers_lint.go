package holdfast

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Finding is a setting that another one contradicts, or that the world around
// the gateway does.
type Finding struct {
	// Setting is the key of the configuration file that a change is proposed for;
	// of a server's own, with the way there: servers.reports.request_timeout.
	Setting string
	// Text says what contradicts what, what will happen because of it, and what
	// to set instead.
	Text string
}

const (
	// usualReconnect is how long a client may need to come back after a cut:
	// most wait for seconds, some back off to half a minute.
	usualReconnect = 30 * time.Second
	// usualPatience is after how long many clients give a request up, unless told
	// otherwise: the default of the official TypeScript SDK.
	usualPatience = time.Minute
	// headroom is what a heartbeat may come late on its way.
	headroom = 5 * time.Second
	// slowWrite is what 64 KiB need at about 100 kbit/s.
	slowWrite = 5 * time.Second
	// pause is what a healthy program may not answer for: garbage collection,
	// a laptop's disk, a round trip to the other side of the world.
	pause = time.Second
	// supervisors are the shortest waits before a kill that an operator has to
	// have changed in any case: systemd's 90 s.
	supervisors = 90 * time.Second
	// afterStop is what a stop takes beside its drain and stop times.
	afterStop = 2 * time.Second
)

// idleLimit is how long the silence on a stream may be at some common proxy.
type idleLimit struct {
	proxy string
	limit time.Duration
}

// idleLimits are defaults, or what the proxy's own examples set, shortest
// first. Limits on a request's age are another matter.
func idleLimits() []idleLimit {
	return []idleLimit{
		{"HAProxy and CloudFront", 30 * time.Second},
		{"HAProxy in Debian", 50 * time.Second},
		{"Heroku", 55 * time.Second},
		{"nginx and AWS's load balancers", time.Minute},
		{"Cloudflare", 100 * time.Second},
		{"Azure", 230 * time.Second},
		{"Envoy and Node", 5 * time.Minute},
	}
}

// rule is one thing that must hold between timers.
type rule struct {
	setting string
	broken  func(t Timers) bool
	text    func(t Timers) string // of a broken one
}

// Lint reports what contradicts what among the timers, zero ones taken as
// their defaults. The defaults themselves pass.
func (t Timers) Lint() []Finding {
	t = t.withDefaults()
	var found []Finding
	for _, r := range slices.Concat(livenessRules(), callRules(), taskRules(), keepRules(), streamRules(), processRules()) {
		if r.broken(t) {
			found = append(found, Finding{r.setting, r.text(t)})
		}
	}
	return found
}

// Lint reports what Timers.Lint does of the gateway's timers, and what servers'
// and tools' own ones add to that.
func (o Options) Lint() []Finding {
	o = o.withDefaults()
	found := o.Timers.Lint()
	for _, s := range o.Servers {
		at := "servers." + s.Name + "."
		of := s.Timers.Lint()
		found = appendNew(found, at, of, o.Timers.Lint())
		for _, tool := range s.Tools {
			t := s.Timers
			t.RequestTimeout = cmp.Or(tool.RequestTimeout, t.RequestTimeout)
			t.RequestMax = cmp.Or(tool.RequestMax, t.RequestMax)
			t.OrphanGrace = cmp.Or(tool.OrphanGrace, t.OrphanGrace)
			t.TaskAfter = cmp.Or(tool.taskAfter(), t.TaskAfter)
			found = appendNew(found, at+"tools."+tool.Name+".", append(t.Lint(), tool.lint()...), of)
		}
	}
	return found
}

// appendNew appends to all what is in of but not in known, where it was found.
func appendNew(all []Finding, at string, of, known []Finding) []Finding {
	for _, f := range of {
		if !slices.Contains(known, f) {
			all = append(all, Finding{at + f.Setting, f.Text})
		}
	}
	return all
}

// lint reports what contradicts what in one entry.
func (t Tool) lint() []Finding {
	var found []Finding
	if t.OrphanGrace != 0 && (t.OnDisconnect == DisconnectCancel || t.OnDisconnect == DisconnectKeep) {
		found = append(found, Finding{"orphan_grace", fmt.Sprintf(
			"on_disconnect is %s: its calls have no grace, and orphan_grace has no effect; leave it out, or set on_disconnect to linger", t.OnDisconnect)})
	}
	if t.Adopt == AdoptNever && (t.OnDisconnect == DisconnectLinger || t.OnDisconnect == DisconnectKeep) {
		found = append(found, Finding{"on_disconnect", fmt.Sprintf(
			"on_disconnect is %s and adopt is never: calls of stateless clients go on, but nobody can come back for their answers; set adopt to auto or key, or leave on_disconnect out", t.OnDisconnect)})
	}
	return found
}

// livenessRules name a setting that servers have, too.
func livenessRules() []rule {
	pinging := func(t Timers) bool { return t.PingInterval > 0 }
	return []rule{{
		"ping_timeout",
		func(t Timers) bool { return pinging(t) && t.PingTimeout == t.PingInterval },
		func(t Timers) string {
			return fmt.Sprintf("ping_timeout and ping_interval are both %s: a ping is given up at the moment the next one is due, so that an answer which is a little slow looks like a miss; set ping_timeout to two thirds of it, %s",
				span(t.PingTimeout), span(round(t.PingInterval*2/3)))
		},
	}, {
		"ping_timeout",
		func(t Timers) bool { return pinging(t) && t.PingTimeout > t.PingInterval },
		func(t Timers) string {
			return fmt.Sprintf("ping_timeout (%s) is longer than ping_interval (%s): a ping is still waited for when the next one is due, so that silence is noticed later than the interval promises; set ping_timeout to %s, or ping_interval above %s",
				span(t.PingTimeout), span(t.PingInterval), span(round(t.PingInterval*2/3)), span(t.PingTimeout))
		},
	}, {
		"ping_timeout",
		func(t Timers) bool { return pinging(t) && t.PingTimeout < pause },
		func(t Timers) string {
			return fmt.Sprintf("ping_timeout (%s) is shorter than a healthy program may pause: one that collects garbage, or is far away, counts as silent; set it to 5s or more", span(t.PingTimeout))
		},
	}, {
		"ping_misses",
		func(t Timers) bool { return pinging(t) && t.PingMisses == 1 },
		func(Timers) string {
			return "ping_misses is 1: a single answer that is late or lost counts as silence; set it to 2 or more"
		},
	}, {
		"request_timeout",
		func(t Timers) bool { return pinging(t) && t.RequestTimeout > 0 && t.RequestTimeout <= t.silence() },
		func(t Timers) string {
			return fmt.Sprintf("request_timeout (%s) is not above the %s that %d missed pings take (ping_interval %s, ping_timeout %s): calls are cancelled before it is known whether their server works; set it above that, or ping_interval lower",
				span(t.RequestTimeout), span(t.silence()), t.PingMisses, span(t.PingInterval), span(t.PingTimeout))
		},
	}}
}

// silence is how long it takes to notice that a peer is silent.
func (t Timers) silence() time.Duration {
	return time.Duration(t.PingMisses)*t.PingInterval + t.PingTimeout
}

func callRules() []rule {
	return []rule{{
		"request_timeout",
		func(t Timers) bool { return t.RequestMax > 0 && t.RequestTimeout >= t.RequestMax },
		func(t Timers) string {
			return fmt.Sprintf("request_timeout (%s) is not below request_max (%s): every call reaches its maximum first, so that one that hangs is never ended for want of progress; set request_timeout to %s, or request_max higher",
				span(t.RequestTimeout), span(t.RequestMax), span(round(t.RequestMax/4)))
		},
	}, {
		"request_max",
		func(t Timers) bool { return t.RequestTimeout < 0 && t.RequestMax < 0 },
		func(Timers) string {
			return "request_timeout and request_max are both off: a call that hangs keeps its server busy for as long as its client waits; set request_max to the longest that a call may take, such as 24h"
		},
	}, {
		"request_max",
		func(t Timers) bool { return t.RequestMax > 0 && t.QuestionTimeout >= t.RequestMax },
		func(t Timers) string {
			return fmt.Sprintf("request_max (%s) is not above question_timeout (%s): a call that asks its user something is ended while the answer may still come; set request_max higher, or question_timeout to %s",
				span(t.RequestMax), span(t.QuestionTimeout), span(round(t.RequestMax/2)))
		},
	}, {
		"orphan_grace",
		func(t Timers) bool { return t.OrphanGrace < usualReconnect },
		func(t Timers) string {
			return fmt.Sprintf("orphan_grace (%s) is shorter than clients need to come back after a cut, a few seconds up to %s: calls are cancelled although their readers return; set it above %s",
				span(t.OrphanGrace), span(usualReconnect), span(usualReconnect))
		},
	}, {
		"orphan_grace",
		func(t Timers) bool { return t.OrphanGrace > 0 && t.OrphanGrace > t.ReconnectGrace },
		func(t Timers) string {
			return fmt.Sprintf("orphan_grace (%s) is longer than reconnect_grace (%s): an HTTP+SSE session that was left ends first, and its calls are cancelled with it; set reconnect_grace to %s, too",
				span(t.OrphanGrace), span(t.ReconnectGrace), span(t.OrphanGrace))
		},
	}, {
		"orphan_grace",
		func(t Timers) bool { return t.OrphanGrace >= t.SessionTimeout },
		func(t Timers) string {
			return fmt.Sprintf("orphan_grace (%s) is not below session_timeout (%s): once such a call has ended its session may be gone before the client comes back, and the answer with it; set session_timeout above %s",
				span(t.OrphanGrace), span(t.SessionTimeout), span(t.OrphanGrace))
		},
	}}
}

// taskAfter is after how long a call of the tool becomes a task, negative for
// never, zero for what the server says.
func (t Tool) taskAfter() time.Duration {
	switch t.Task {
	case TaskNever:
		return -1
	case TaskAlways, TaskRequired:
		return time.Nanosecond // at once
	}
	return t.TaskAfter
}

// taskRules are about calls that become tasks. None does if TaskAfter is negative.
func taskRules() []rule {
	reaches := func(after, end time.Duration) bool { return end > 0 && after >= end }
	return []rule{{
		"task_after",
		func(t Timers) bool { return reaches(t.TaskAfter, t.RequestMax) },
		func(t Timers) string {
			return fmt.Sprintf("task_after (%s) is not below request_max (%s): every call has ended before it would become a task; set task_after to 10s, or to 0s if none is to",
				span(t.TaskAfter), span(t.RequestMax))
		},
	}, {
		"task_after",
		func(t Timers) bool {
			return reaches(t.TaskAfter, t.RequestTimeout) && !reaches(t.TaskAfter, t.RequestMax)
		},
		func(t Timers) string {
			return fmt.Sprintf("task_after (%s) is not below request_timeout (%s): a call without progress is ended before it would become a task; set task_after to 10s, or request_timeout above %s",
				span(t.TaskAfter), span(t.RequestTimeout), span(t.TaskAfter))
		},
	}, {
		"task_after",
		func(t Timers) bool {
			return t.TaskAfter >= usualPatience && !reaches(t.TaskAfter, t.RequestTimeout) && !reaches(t.TaskAfter, t.RequestMax)
		},
		func(t Timers) string {
			return fmt.Sprintf("task_after (%s) is not below the %s after which many clients give a request up: they cancel a call before it becomes a task; set it well below, such as 10s",
				span(t.TaskAfter), span(usualPatience))
		},
	}, {
		"result_ttl",
		func(t Timers) bool { return t.TaskAfter > 0 && t.ResultTTL < usualReconnect },
		func(t Timers) string {
			return fmt.Sprintf("result_ttl (%s) is shorter than clients need to come back after a cut, a few seconds up to %s: one that asks for its task then finds it gone, with its answer; set it above %s",
				span(t.ResultTTL), span(usualReconnect), span(usualReconnect))
		},
	}}
}

// keepRules are about answers that were not delivered.
func keepRules() []rule {
	return []rule{{
		"orphan_grace",
		func(t Timers) bool { return t.OrphanGrace > t.ResultTTL },
		func(t Timers) string {
			return fmt.Sprintf("orphan_grace (%s) is longer than result_ttl (%s): a client may be away for longer while its call runs than once it has ended, and finds no answer then; set result_ttl to %s or more",
				span(t.OrphanGrace), span(t.ResultTTL), span(t.OrphanGrace))
		},
	}, {
		"orphan_grace",
		func(t Timers) bool { return t.OrphanGrace > 0 && t.WriteTimeout > t.OrphanGrace },
		func(t Timers) string {
			return fmt.Sprintf("orphan_grace (%s) is shorter than write_timeout (%s): a stream that takes no more bytes counts as read for longer than a call without a reader may run, and an equal call meanwhile is executed once more; set write_timeout to %s or less",
				span(t.OrphanGrace), span(t.WriteTimeout), span(round(t.OrphanGrace/2)))
		},
	}, {
		"adopt_window",
		func(t Timers) bool { return t.AdoptWindow > t.ResultTTL },
		func(t Timers) string {
			return fmt.Sprintf("adopt_window (%s) is longer than result_ttl (%s): answers are dropped while an equal call would still get them, and it is executed once more; set result_ttl to %s or more, or adopt_window to %s",
				span(t.AdoptWindow), span(t.ResultTTL), span(t.AdoptWindow), span(t.ResultTTL))
		},
	}, {
		"result_ttl",
		func(t Timers) bool { return t.ResultTTL > t.SessionTimeout },
		func(t Timers) string {
			return fmt.Sprintf("result_ttl (%s) is longer than session_timeout (%s): a session that nobody reads ends before, and its answers with it; set session_timeout above %s, or result_ttl lower",
				span(t.ResultTTL), span(t.SessionTimeout), span(t.ResultTTL))
		},
	}}
}

func streamRules() []rule {
	return []rule{{
		"heartbeat",
		func(t Timers) bool { return t.Heartbeat > idleLimits()[0].limit-headroom },
		func(t Timers) string {
			var cut []string
			for _, l := range idleLimits() {
				if t.Heartbeat > l.limit-headroom {
					cut = append(cut, fmt.Sprintf("%s (%s)", l.proxy, span(l.limit)))
				}
			}
			return fmt.Sprintf("heartbeat (%s) is not %s below the silence that ends a stream by default at %s: behind them, calls that say nothing lose their streams; set it to %s or less, or raise the limits of what stands in front",
				span(t.Heartbeat), span(headroom), strings.Join(cut, ", "), span(idleLimits()[0].limit-headroom))
		},
	}, {
		"answer_grace",
		func(t Timers) bool { return t.AnswerGrace >= t.Heartbeat },
		func(t Timers) string {
			return fmt.Sprintf("answer_grace (%s) is not below heartbeat (%s): a call sends nothing while it may still be answered as JSON, so that its connection is silent for longer than the heartbeat allows, and is cut where that matters; set answer_grace well below heartbeat",
				span(t.AnswerGrace), span(t.Heartbeat))
		},
	}, {
		"write_timeout",
		func(t Timers) bool { return t.WriteTimeout < slowWrite },
		func(t Timers) string {
			return fmt.Sprintf("write_timeout (%s) is shorter than 64 KiB take on a slow line: a client there loses its stream in every large answer, again after each resumption; set it to %s or more",
				span(t.WriteTimeout), span(slowWrite))
		},
	}, {
		"write_timeout",
		func(t Timers) bool { return t.WriteTimeout > 4*t.Heartbeat && t.WriteTimeout > time.Minute },
		func(t Timers) string {
			return fmt.Sprintf("write_timeout (%s) is longer than four heartbeats (of %s): a stream that takes no more bytes is held open for that long, though heartbeats are to find it out; set it to %s or less",
				span(t.WriteTimeout), span(t.Heartbeat), span(max(time.Minute, 4*t.Heartbeat)))
		},
	}, {
		"reconnect_grace",
		func(t Timers) bool { return t.ReconnectGrace < usualReconnect },
		func(t Timers) string {
			return fmt.Sprintf("reconnect_grace (%s) is shorter than clients need to come back after a cut, a few seconds up to %s: an HTTP+SSE client finds its session and calls ended; set it above %s",
				span(t.ReconnectGrace), span(usualReconnect), span(usualReconnect))
		},
	}}
}

func processRules() []rule {
	return []rule{{
		"start_timeout",
		func(t Timers) bool { return t.ProbeTimeout >= t.StartTimeout },
		func(t Timers) string {
			return fmt.Sprintf("start_timeout (%s) is not above probe_timeout (%s): a server that is silent to server/discover is given up before it is sent initialize; set probe_timeout to %s or less",
				span(t.StartTimeout), span(t.ProbeTimeout), span(round(t.StartTimeout/2)))
		},
	}, {
		"stop_timeout",
		func(t Timers) bool { return max(0, t.Drain)+t.StopTimeout+afterStop > supervisors },
		func(t Timers) string {
			total := max(0, t.Drain) + t.StopTimeout + afterStop
			return fmt.Sprintf("drain (%s) and stop_timeout (%s) make a stop of up to %s: what supervises the gateway kills it before, if it waits for its default time (Docker 10s, Kubernetes 30s, systemd 90s), and calls are lost; set drain lower, or let it wait for %s",
				span(t.Drain), span(t.StopTimeout), span(total), span(total))
		},
	}}
}

// round makes a proposal of a computed duration.
func round(d time.Duration) time.Duration {
	if d < 2*time.Second {
		return d.Truncate(time.Millisecond)
	}
	return d.Truncate(time.Second)
}

// span is a duration as people write it: 15m, not 15m0s. One that stands for
// none is 0s.
func span(d time.Duration) string {
	s := max(0, d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
