package holdfast_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast"
)

func TestDefaultTimersPass(t *testing.T) {
	for _, f := range (holdfast.Timers{}).Lint() {
		t.Errorf("%s: %s", f.Setting, f.Text)
	}
	o := holdfast.Options{Server: holdfast.Command("cat")}
	o.Server.Tools = []holdfast.Tool{{Name: "dice", Adopt: holdfast.AdoptNever}, {Name: "report", OnDisconnect: holdfast.DisconnectLinger}}
	for _, f := range o.Lint() {
		t.Errorf("%s: %s", f.Setting, f.Text)
	}
}

// lintCase has timers that break a rule, and timers that just do not break any.
type lintCase struct {
	rule          string
	broken, whole timers
	setting       string
	text          []string // of the finding: what, why, what instead
}

type timers = holdfast.Timers

func livenessCases() []lintCase {
	return []lintCase{
		{
			"ping time-out equal to the interval", timers{PingInterval: 20 * time.Second}, timers{PingInterval: 21 * time.Second},
			"ping_timeout", []string{"both 20s", "looks like a miss", "set ping_timeout to two thirds of it, 13s"},
		},
		{
			"ping time-out above the interval", timers{PingTimeout: 40 * time.Second}, timers{PingTimeout: 29 * time.Second},
			"ping_timeout", []string{"ping_timeout (40s)", "ping_interval (30s)", "set ping_timeout to 20s"},
		},
		{
			"no pings, no rules for them", timers{PingInterval: 20 * time.Second}, timers{PingInterval: -1, PingMisses: 1, PingTimeout: time.Millisecond},
			"ping_timeout", nil,
		},
		{
			"ping time-out below a pause", timers{PingTimeout: 900 * time.Millisecond}, timers{PingTimeout: time.Second},
			"ping_timeout", []string{"(900ms)", "set it to 5s or more"},
		},
		{
			"one miss", timers{PingMisses: 1}, timers{PingMisses: 3},
			"ping_misses", []string{"ping_misses is 1", "set it to 2"},
		},
		{
			"request idle before silence is known", timers{RequestTimeout: 80 * time.Second}, timers{RequestTimeout: 81 * time.Second},
			"request_timeout", []string{"request_timeout (1m20s)", "2 missed pings", "ping_interval 30s, ping_timeout 20s"},
		},
	}
}

func callCases() []lintCase {
	return []lintCase{
		{
			"request idle at the maximum", timers{RequestMax: 15 * time.Minute, QuestionTimeout: time.Minute}, timers{RequestMax: 16 * time.Minute, QuestionTimeout: time.Minute},
			"request_timeout", []string{"request_timeout (15m)", "request_max (15m)", "set request_timeout to 3m45s"},
		},
		{
			"nothing ends a call", timers{RequestTimeout: -1, RequestMax: -1}, timers{RequestTimeout: -1},
			"request_max", []string{"both off", "set request_max"},
		},
		{
			"a question outlasts its call", timers{QuestionTimeout: time.Hour}, timers{QuestionTimeout: 59 * time.Minute},
			"request_max", []string{"request_max (1h)", "question_timeout (1h)", "question_timeout to 30m"},
		},
		{
			"a question without a maximum", timers{QuestionTimeout: time.Hour}, timers{QuestionTimeout: 2 * time.Hour, RequestMax: -1},
			"request_max", nil,
		},
	}
}

func taskCases() []lintCase {
	return []lintCase{
		{
			"a task after the maximum", timers{TaskAfter: time.Hour}, timers{TaskAfter: 59 * time.Second},
			"task_after", []string{"task_after (1h)", "request_max (1h)", "every call", "set task_after to 10s"},
		},
		{
			"a task after the idle clock", timers{TaskAfter: 15 * time.Minute}, timers{TaskAfter: 59 * time.Second, RequestTimeout: 2 * time.Minute},
			"task_after", []string{"task_after (15m)", "request_timeout (15m)", "without progress", "request_timeout above 15m"},
		},
		{
			"a task after its client's patience", timers{TaskAfter: time.Minute}, timers{TaskAfter: 59 * time.Second},
			"task_after", []string{"task_after (1m)", "below the 1m", "clients give a request up", "such as 10s"},
		},
		{
			"a task that is gone when its client comes back", timers{ResultTTL: 29 * time.Second}, timers{ResultTTL: 2 * time.Minute},
			"result_ttl", []string{"result_ttl (29s)", "asks for its task", "set it above 30s"},
		},
		{
			"no tasks, no rules for them", timers{TaskAfter: time.Hour}, timers{TaskAfter: -1, RequestMax: 11 * time.Minute, RequestTimeout: 2 * time.Minute},
			"task_after", nil,
		},
		{
			"a task, and no end of its call", timers{TaskAfter: time.Hour}, timers{TaskAfter: 59 * time.Second, RequestMax: -1},
			"task_after", nil,
		},
	}
}

func keepCases() []lintCase {
	return []lintCase{
		{
			"orphan grace below a reconnect", timers{OrphanGrace: 29 * time.Second, WriteTimeout: 10 * time.Second}, timers{OrphanGrace: 30 * time.Second},
			"orphan_grace", []string{"orphan_grace (29s)", "readers return", "set it above 30s"},
		},
		{
			"no orphan grace", timers{OrphanGrace: -1}, timers{OrphanGrace: time.Minute},
			"orphan_grace", []string{"orphan_grace (0s)"},
		},
		{
			"orphan grace above the reconnect grace", timers{OrphanGrace: 3 * time.Minute}, timers{OrphanGrace: 3 * time.Minute, ReconnectGrace: 3 * time.Minute},
			"orphan_grace", []string{"orphan_grace (3m)", "reconnect_grace (2m)", "set reconnect_grace to 3m"},
		},
		{
			"orphan grace at the session's end", timers{OrphanGrace: 2 * time.Minute, SessionTimeout: 2 * time.Minute, ResultTTL: 2 * time.Minute},
			timers{OrphanGrace: 2 * time.Minute, SessionTimeout: 3 * time.Minute, ResultTTL: 2 * time.Minute},
			"orphan_grace", []string{"session_timeout (2m)", "set session_timeout above 2m"},
		},
		{
			"orphan grace above the answer's keep", timers{OrphanGrace: 2 * time.Minute, ResultTTL: time.Minute, AdoptWindow: time.Minute},
			timers{ResultTTL: 2 * time.Minute},
			"orphan_grace", []string{"result_ttl (1m)", "finds no answer", "set result_ttl to 2m"},
		},
		{
			"orphan grace below a blocked write", timers{OrphanGrace: 40 * time.Second, WriteTimeout: 50 * time.Second}, timers{OrphanGrace: 40 * time.Second, WriteTimeout: 40 * time.Second},
			"orphan_grace", []string{"write_timeout (50s)", "executed once more", "set write_timeout to 20s"},
		},
		{
			"adopt window above the answer's keep", timers{AdoptWindow: 11 * time.Minute}, timers{AdoptWindow: 10 * time.Minute},
			"adopt_window", []string{"adopt_window (11m)", "result_ttl (10m)", "adopt_window to 10m"},
		},
		{
			"answers outlast their session", timers{ResultTTL: 31 * time.Minute}, timers{ResultTTL: 30 * time.Minute},
			"result_ttl", []string{"result_ttl (31m)", "session_timeout (30m)", "set session_timeout above 31m"},
		},
	}
}

func streamCases() []lintCase {
	return []lintCase{
		{
			"heartbeat above a proxy's limit", timers{Heartbeat: 56 * time.Second}, timers{Heartbeat: 25 * time.Second},
			"heartbeat", []string{"HAProxy and CloudFront (30s), HAProxy in Debian (50s), Heroku (55s), nginx and AWS's load balancers (1m):", "set it to 25s"},
		},
		{
			"answer grace at the heartbeat", timers{AnswerGrace: 15 * time.Second}, timers{AnswerGrace: 14 * time.Second},
			"answer_grace", []string{"answer_grace (15s)", "heartbeat (15s)", "set answer_grace well below"},
		},
		{
			"write time-out below a slow line", timers{WriteTimeout: 4 * time.Second}, timers{WriteTimeout: 5 * time.Second},
			"write_timeout", []string{"write_timeout (4s)", "set it to 5s"},
		},
		{
			"write time-out above the heartbeats", timers{WriteTimeout: 61 * time.Second}, timers{WriteTimeout: 60 * time.Second},
			"write_timeout", []string{"write_timeout (1m1s)", "four heartbeats (of 15s)", "set it to 1m or less"},
		},
		{
			"reconnect grace below a reconnect", timers{ReconnectGrace: -1, OrphanGrace: -1}, timers{ReconnectGrace: 30 * time.Second, OrphanGrace: 30 * time.Second},
			"reconnect_grace", []string{"reconnect_grace (0s)", "set it above 30s"},
		},
	}
}

func processCases() []lintCase {
	return []lintCase{
		{
			"probe at the start's end", timers{ProbeTimeout: time.Minute}, timers{ProbeTimeout: 59 * time.Second},
			"start_timeout", []string{"start_timeout (1m)", "probe_timeout (1m)", "set probe_timeout to 30s"},
		},
		{
			"a stop that outlasts supervisors", timers{Drain: 84 * time.Second}, timers{Drain: 83 * time.Second},
			"stop_timeout", []string{"drain (1m24s)", "up to 1m31s", "systemd 90s", "let it wait for 1m31s"},
		},
	}
}

func TestTimersLint(t *testing.T) {
	for _, tt := range slices.Concat(livenessCases(), callCases(), taskCases(), keepCases(), streamCases(), processCases()) {
		t.Run(tt.rule, func(t *testing.T) {
			fires := func(f holdfast.Finding) bool {
				missing := func(part string) bool { return !strings.Contains(f.Text, part) }
				return f.Setting == tt.setting && !slices.ContainsFunc(tt.text, missing)
			}
			found := tt.broken.Lint()
			if !slices.ContainsFunc(found, fires) {
				t.Errorf("no finding about %s with %q in %q", tt.setting, tt.text, found)
			}
			for _, f := range tt.whole.Lint() {
				t.Errorf("finding about what is right: %s: %s", f.Setting, f.Text)
			}
		})
	}
}

// One fault is one finding.
func TestLintSaysThingsOnce(t *testing.T) {
	for name, timers := range map[string]holdfast.Timers{
		"ping":      {PingInterval: 20 * time.Second},
		"heartbeat": {Heartbeat: time.Minute},
		"adopt":     {AdoptWindow: 20 * time.Minute},
		"maximum":   {RequestMax: 10*time.Minute + time.Second},
		"drain":     {Drain: time.Hour},
		"task, 1":   {TaskAfter: 2 * time.Hour},
		"task, 2":   {TaskAfter: 20 * time.Minute},
		"task, 3":   {TaskAfter: 2 * time.Minute},
	} {
		if found := timers.Lint(); len(found) != 1 {
			t.Errorf("%s: %d findings: %q", name, len(found), found)
		}
	}
}

// A mode of a tool stands for a time: where none of the server's calls becomes a
// task, those of a tool may, and the other way round.
func TestLintOfTasks(t *testing.T) {
	quick := holdfast.Timers{RequestTimeout: 90 * time.Second, RequestMax: 2 * time.Minute, QuestionTimeout: time.Minute}
	for name, tt := range map[string]struct {
		server time.Duration
		tool   holdfast.Tool
		want   []string
	}{
		"never, though the server's do":   {3 * time.Minute, holdfast.Tool{Task: holdfast.TaskNever}, []string{"task_after"}},
		"always, though the server's do":  {3 * time.Minute, holdfast.Tool{Task: holdfast.TaskAlways}, []string{"task_after"}},
		"later than the server's":         {0, holdfast.Tool{TaskAfter: 3 * time.Minute}, []string{"servers.s.tools.t.task_after"}},
		"late, where the server's do not": {-1, holdfast.Tool{TaskAfter: 3 * time.Minute}, []string{"servers.s.tools.t.task_after"}},
		"always, and the server's do not": {-1, holdfast.Tool{Task: holdfast.TaskRequired}, nil},
	} {
		s := holdfast.Command("x")
		s.Name, tt.tool.Name = "s", "t"
		s.Tools = []holdfast.Tool{tt.tool}
		timers := quick
		timers.TaskAfter = tt.server
		var got []string
		for _, f := range (holdfast.Options{Servers: []holdfast.Server{s}, Timers: timers}).Lint() {
			got = append(got, f.Setting)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// What servers and tools have of their own is checked against what they
// inherit, and what they inherit is not reported again.
func TestOptionsLint(t *testing.T) {
	reports := holdfast.Command("python", "server.py")
	reports.Name = "reports"
	reports.Timers = holdfast.Timers{RequestTimeout: time.Hour, Heartbeat: time.Hour} // the latter is ignored
	reports.Tools = []holdfast.Tool{
		{Name: "quick", RequestTimeout: time.Minute},
		{Name: "long_*", RequestTimeout: 2 * time.Hour, RequestMax: 3 * time.Hour},
		{Name: "kept", OnDisconnect: holdfast.DisconnectKeep, OrphanGrace: time.Minute, RequestTimeout: 30 * time.Minute},
		{Name: "dice", OnDisconnect: holdfast.DisconnectLinger, Adopt: holdfast.AdoptNever, RequestTimeout: 30 * time.Minute},
		{Name: "plain"},
		{Name: "late", RequestTimeout: 30 * time.Minute, TaskAfter: time.Hour},
		{Name: "at_once", RequestTimeout: 30 * time.Minute, Task: holdfast.TaskAlways},
	}
	silent := holdfast.Command("silent")
	silent.Timers = holdfast.Timers{PingMisses: 1}
	slow := holdfast.Command("slow")
	slow.StartTimeout = time.Second
	o := holdfast.Options{
		Servers: []holdfast.Server{reports, silent, slow, holdfast.Command("as-is")},
		Timers:  holdfast.Timers{Heartbeat: 28 * time.Second},
	}
	var got []string
	for _, f := range o.Lint() {
		got = append(got, f.Setting)
	}
	want := []string{
		"heartbeat",
		"servers.reports.request_timeout",
		"servers.reports.tools.quick.request_timeout",
		"servers.reports.tools.kept.orphan_grace",
		"servers.reports.tools.dice.on_disconnect",
		"servers.reports.tools.late.task_after",
		"servers.silent.ping_misses",
		"servers.slow.start_timeout",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if reports.Tools[0].Adopt != "" || o.Timers.PingInterval != 0 {
		t.Error("Lint has changed what it looked at")
	}
}
