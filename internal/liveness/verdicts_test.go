package liveness

import (
	"testing"
	"time"
)

// deaf answers nothing.
func deaf(p *peer) { p.deaf = true }

// verdicts are what must be said of a peer that behaves in some way.
var verdicts = []struct {
	name     string
	answers  bool // it has answered a ping before the call
	settings Settings
	behave   func(p *peer)
	after    time.Duration
	want     Verdict
	evidence []string
}{
	{name: "a call began just now", behave: deaf, after: 29 * time.Second,
		want: Working, evidence: []string{"no output since the call began 29s ago"}},
	{name: "output lately", behave: func(p *peer) { p.deaf, p.chatter = true, 20*time.Second }, after: 10 * time.Minute,
		want: Working, evidence: []string{"output "}},
	{name: "silent, ping not due yet", behave: deaf, after: 40 * time.Second,
		want: Working, evidence: []string{"ping sent 10s ago, not answered yet"}},
	{name: "silent, answers pings", behave: func(*peer) {}, after: 10 * time.Minute,
		want: Busy, evidence: []string{"ping answered"}},
	{name: "silent, answers pings late but in time", behave: func(p *peer) { p.delay = 19 * time.Second }, after: 10 * time.Minute,
		want: Busy},
	{name: "silent, answers pings, whatever its processes do", behave: func(p *peer) { p.vitals.Stopped = true }, after: 10 * time.Minute,
		want: Busy},
	{name: "uses CPU, no answer", answers: true, behave: func(p *peer) { p.deaf, p.cpu = true, 0.98 }, after: 60 * time.Second,
		want: Blocked, evidence: []string{"CPU 0.98 s/s over 10s", "ping unanswered for 30s", "no output since the call began 1m0s ago"}},
	{name: "uses CPU for long", answers: true, behave: func(p *peer) { p.deaf, p.cpu = true, 1 }, after: time.Hour,
		want: Blocked, evidence: []string{"CPU 1.00 s/s over 15s", "2 pings unanswered, oldest 59m30s"}},
	{name: "moves bytes", answers: true, behave: func(p *peer) { p.deaf, p.io = true, 100 }, after: 60 * time.Second,
		want: Waiting, evidence: []string{" bytes of I/O over 10s", "no CPU over 10s"}},
	{name: "runs a child", answers: true, behave: func(p *peer) {
		p.deaf, p.vitals.Children, p.vitals.Procs = true, 1, 2
		p.vitals.Youngest, p.vitals.YoungestPID = p.now.Add(time.Second), 4711
	}, after: 60 * time.Second, want: Waiting, evidence: []string{"child process 4711 is running", "no I/O over 10s"}},
	{name: "runs below a script, which says nothing", answers: true, behave: func(p *peer) {
		p.deaf, p.vitals.Children, p.vitals.Procs = true, 1, 2
		p.vitals.Youngest, p.vitals.YoungestPID = t0, 4711
	}, after: 60 * time.Second, want: Stuck},
	{name: "waits for something with a name", answers: true, behave: func(p *peer) { p.deaf, p.vitals.Waits = true, "a reply from 10.1.2.3:443" },
		after: 60 * time.Second, want: Waiting, evidence: []string{"it waits for a reply from 10.1.2.3:443"}},
	{name: "nothing moves", answers: true, behave: deaf, after: 51 * time.Second,
		want: Stuck, evidence: []string{"no CPU over 10s", "no I/O over 10s", "ping unanswered for 21s", "no output since the call began 51s ago"}},
	{name: "nothing moves but what reads our pings", answers: true, behave: func(p *peer) { p.deaf, p.reads = true, true }, after: 80 * time.Second,
		want: Stuck, evidence: []string{"no I/O", "2 pings unanswered, oldest 50s"}},
	{name: "a little CPU is none", answers: true, behave: func(p *peer) { p.deaf, p.cpu = true, 0.009 }, after: 10 * time.Minute, want: Stuck},
	{name: "one percent is some", answers: true, behave: func(p *peer) { p.deaf, p.cpu = true, 0.011 }, after: 10 * time.Minute, want: Blocked},
	{name: "wants CPU and gets none", answers: true, behave: func(p *peer) { p.deaf, p.vitals.Runnable = true, true }, after: 60 * time.Second,
		want: Blocked, evidence: []string{"CPU 0.00 s/s", "waits for a core"}},
	{name: "stopped", answers: true, behave: func(p *peer) {
		p.deaf, p.vitals.Stopped, p.vitals.Waits = true, true, "anything"
	}, after: 51 * time.Second, want: Stuck, evidence: []string{"stopped by a signal"}},
	{name: "stopped, never answered", behave: func(p *peer) { p.deaf, p.vitals.Stopped = true, true }, after: 60 * time.Second,
		want: Stuck, evidence: []string{"stopped by a signal", "never answered a ping"}},
	{name: "one of its processes is stopped, another works", answers: true, behave: func(p *peer) {
		p.deaf, p.cpu, p.vitals.Stopped = true, 0.5, true
	}, after: 60 * time.Second, want: Blocked},
	{name: "never answered, uses CPU", behave: func(p *peer) { p.deaf, p.cpu = true, 1 }, after: 60 * time.Second,
		want: Blocked, evidence: []string{"never answered a ping and is not judged by them"}},
	{name: "never answered, nothing moves", behave: deaf, after: time.Hour,
		want: Waiting, evidence: []string{"no CPU", "no I/O", "never answered a ping and is not judged by them"}},
	{name: "refuses pings, nothing moves", behave: func(p *peer) { p.refuses = true }, after: time.Hour,
		want: Waiting, evidence: []string{"takes no pings"}},
	{name: "has no ping, uses CPU", settings: Settings{NoPing: true}, behave: func(p *peer) { p.cpu = 1 }, after: 41 * time.Second, want: Blocked},
	{name: "has no ping, remote", settings: Settings{NoPing: true, Remote: true}, behave: func(*peer) {}, after: 31 * time.Second, want: Waiting},
	{name: "refuses pings, uses CPU", behave: func(p *peer) { p.refuses, p.cpu = true, 1 }, after: time.Hour, want: Blocked},
	{name: "nothing is known of it, one ping", answers: true, behave: func(p *peer) { p.deaf, p.blind = true, true }, after: 69 * time.Second,
		want: Working},
	{name: "nothing is known of it, two pings", answers: true, behave: func(p *peer) { p.deaf, p.blind = true, true }, after: 71 * time.Second,
		want: Stuck, evidence: []string{"2 pings unanswered, oldest 41s", "nothing is known of its processes"}},
	{name: "nothing is known of it, never answered", behave: func(p *peer) { p.deaf, p.blind = true, true }, after: time.Hour,
		want: Waiting, evidence: []string{"nothing is known of its processes", "never answered"}},
	{name: "remote, does not answer", answers: true, settings: Settings{Remote: true}, behave: deaf, after: 71 * time.Second,
		want: Stuck, evidence: []string{"2 pings unanswered, oldest 41s"}},
	{name: "remote, never answered", settings: Settings{Remote: true}, behave: deaf, after: time.Hour, want: Waiting},
	{name: "its processes come and go", answers: true, behave: func(p *peer) {
		p.deaf = true
		p.run(45 * time.Second)
		p.vitals.Procs++
	}, after: 10 * time.Second, want: Waiting, evidence: []string{"2 processes, 1 before"}},
}

func TestVerdicts(t *testing.T) {
	for _, tt := range verdicts {
		t.Run(tt.name, func(t *testing.T) {
			p := newPeer(tt.settings)
			if tt.answers {
				p.knownToAnswer()
			}
			p.Began(p.now)
			tt.behave(p)
			p.run(tt.after)
			p.want(t, tt.want, tt.evidence...)
		})
	}
}
