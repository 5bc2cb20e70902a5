package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/liveness"
)

// judge says what is not as it should be.
func judge(rows []row) (bad []string) {
	for _, r := range rows {
		for _, what := range r.judge() {
			bad = append(bad, fmt.Sprintf("%s %s: %s (%v; %s)", r.server, r.tool, what, r.path, strings.Join(r.evidence, ", ")))
		}
	}
	if len(rows) == 0 {
		bad = append(bad, "no row was run")
	}
	return bad
}

func (r row) judge() (bad []string) {
	if r.err != nil {
		return []string{r.err.Error()}
	}
	if r.reached != r.want {
		bad = append(bad, fmt.Sprintf("%s, not %s", r.reached, r.want))
	} else if r.after > 2*interval {
		bad = append(bad, fmt.Sprintf("%s only after %s, more than two intervals", r.want, inSeconds(r.after)))
	}
	if r.end != r.scenario.end {
		bad = append(bad, fmt.Sprintf("the call was %s, not %s", r.end, r.scenario.end))
	}
	times := 0
	for _, v := range r.path {
		if !r.allows(v) {
			bad = append(bad, "was called "+v.String())
		}
		if v == r.want {
			times++
		}
	}
	if times > 1 && r.want != liveness.Working && r.also == liveness.Idle {
		bad = append(bad, fmt.Sprintf("%s came and went", r.want))
	}
	return bad
}

const preface = `# Liveness

Made by ` + "`make liveness` (`liveness/run`)" + `; do not edit. Is a server that says nothing at
work, or dead? For each conversation with a server there is a verdict, with the
evidence that led to it and since when it stands.

## What the verdicts mean

| verdict | what was seen | a request's idle clock |
| --- | --- | --- |
| idle | no call in flight: nothing is asked, nothing is looked at | |
| working | output or progress within the ping interval, or the call is younger than that | runs, and begins anew with the call's own progress |
| busy | silent, but it answers pings | runs |
| blocked | ping unanswered, its processes use CPU | is held |
| waiting | ping unanswered or refused, no CPU, but bytes move, or it waits for a process, a reply over the network or a timer of its own. Also whatever cannot be judged | is held, but for what cannot be judged |
| stuck | ping unanswered by a server that used to answer them, no CPU, no I/O, no output; or it was stopped (SIGSTOP) | runs |
| gone | it exited, or closed its output | |

## What follows from them

- Working and busy say that the server is there, not that the call will ever be answered: so
  the request's idle clock (` + "`--request-timeout`" + `) runs, and only progress of the call itself resets
  it. A ping's answer never does.
- Blocked and waiting are evidence of work that cannot say so: the idle clock is held, and only
  the request maximum (` + "`--request-max`" + `) ends such a call.
- Stuck is reported at once. The call is cancelled when its idle time is over, and the server is
  replaced only if it then fails a fresh request.
- Gone ends the server's calls at once.
- Nothing is ever restarted because of a ping alone.

## How it is found out

- Pings are sent only while a call is in flight and nothing was heard for the ping interval. As
  long as there is output there is no ping. At most ` + "`--ping-misses`" + ` are left open.
- The processes are looked at only while a ping is late, or where there is no other witness:
  state, CPU time, bytes, children, of all processes that the server's command started. The first
  look is halfway through the ping's time-out, the second at its end. Where the processes can be
  seen, one unanswered ping is enough; where ping is the only witness it takes ` + "`--ping-misses`" + `.
- Less than 1 % of a core between two looks is no CPU. Bytes of our own that a server reads are no
  I/O of its. A process counts as waited for if it began after the call: under ` + "`npx` or `sh -c`" + ` the
  server itself is a child.
- A server that never answered a ping, or refuses them, is not judged by ping: without any other
  sign it is waiting, and the evidence says so. A late answer is welcome, and makes it busy.
- How much is known depends on the system. On Linux all of it, but bytes that go by send(2) and
  recv(2) are in no counter there: for those it counts what the first thread waits for. Windows
  tells neither who is stopped nor what is waited for. macOS does not tell what is waited for, and
  counts bytes of disks only: more servers count as stuck there that wait for the network.

What cannot be told apart: a deadlock, and code that blocks the event loop while it waits without
CPU, bytes, child, connection or timer, for a person say. Both are stuck, and both have until
their idle clock ends. The other way round, a dead server whose first thread sleeps, or reads
from a peer that never answers, counts as waiting until the request maximum.

## The table

`

func write(w io.Writer, versions []string, rows []row) {
	fmt.Fprint(w, preface)
	fmt.Fprintf(w, "Real servers, `liveness/children`, on %s. Ping interval %s, time-out %s,\n"+
		"idle clock %s. Servers whose state holds the idle clock work for %s, others for %s. \"After\" counts from\n"+
		"the call, or from what was done to the server; asked for is two intervals, %s, at most. No server that\n"+
		"would answer may be called stuck or lose its call. Each call is executed once.\n\n",
		strings.Join(versions, " and "), interval, timeout, requestIdle, held, notHeld, 2*interval)
	fmt.Fprintln(w, "| server | what it does | verdict | after | evidence | the call |\n| --- | --- | --- | --- | --- | --- |")
	for _, r := range rows {
		verdict := r.reached.String()
		if len(r.judge()) > 0 {
			verdict = "**" + verdict + ", not " + r.want.String() + "**"
			if r.reached == r.want {
				verdict = "**" + r.want.String() + ", but see the log**"
			}
		}
		evidence := slices.Clone(r.evidence)
		if r.note != "" {
			evidence = append(evidence, "(the server: "+r.note+")")
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s |\n", r.server, r.what, verdict, inSeconds(r.after), strings.Join(evidence, "; "), r.end)
	}
	fmt.Fprint(w, `
- node: `+"`liveness/children/loop.mjs`"+`; gc: with --expose-gc
- asyncio: `+"`liveness/children/loop.py`"+`; thread: its input is read by a thread; script: below a shell
- ignores, refuses: `+"`liveness/children/plain.py`"+`, without an event loop; what it does with pings
`)
}

func inSeconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
