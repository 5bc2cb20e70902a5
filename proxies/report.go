package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

func (p path) title() string {
	switch {
	case p.name == "cutter":
		return fmt.Sprintf("a cutter, %v of age", p.age)
	case p.age > 0:
		return fmt.Sprintf("%s, %v of age", title(p.name), p.age)
	}
	return fmt.Sprintf("%s, %v of silence", title(p.name), p.silence)
}

func title(name string) string {
	if name == "nginx" {
		return name
	}
	return map[string]string{"haproxy": "HAProxy", "caddy": "Caddy"}[name]
}

const head = `# Paths

Made by ` + "`proxies/run`" + `; do not edit. Something between a client and the gateway ends
streams that are quiet for some time, or that are old. The gateway sees a connection
that ends without a word, as it does when a client leaves. From the silences and ages at
which that happens it learns what the limit is.

This was measured with %s,
each with its configuration in ` + "`deploy/`" + ` and a limit of a few seconds in place of sixty,
before a real gateway with a real stdio server. None of the three has a limit on age that
strikes by itself; the cutter is a TCP relay of a few lines that does. Calls take %v. Half of
them report nothing, half report progress every %v, which is too rare to help.

`

const legend = `An execution is one that the server counted. Cut: streams that broke before the answer.
Ended in order: streams that ended before the answer as if they were complete. The gateway does
that to streams of 2025-11-25 that the path would cut, and Caddy does it to any stream that was
quiet for too long.

`

const learning = `
A heartbeat goes to two thirds of a learned limit on silence, for this route only: one
endpoint, reached from one address or through one forwarder. It never goes below one
second. A limit on age has no remedy but to be early: streams of 2025-11-25 are closed in
order a tenth before, and their clients resume. Stateless calls that take longer than a
limit on age cannot come through, whatever the gateway does, unless their tool lingers.

A limit is believed when at least three streams, at different times, ended so close
together in silence or age that ends at random look like that once in a million times,
and next to none lived longer. Three have to agree within a thousandth, four
within one per cent, seven within ten. Where a stream was silent from its start, silence
and age are the same: then it is taken for silence first, and for age if streams still
end at that age with a shorter heartbeat. Streams that are found dead only by a write
teach a bound, and it takes twenty of them in a row.

In simulations (` + "`internal/pathlimit/random_test.go`" + `) every limit was found within 10 %% of its
value, with jitter of up to 4 %% and more clients leaving than cut, after 4 cuts where timers are
exact and 10 where they are not. Clients that leave at random taught a limit that was none
in 1 of 3,000 runs of 100 streams each. What is learned is forgotten after an hour without
such an end, and comes back with one, for twice as long; it is given up when streams
live past it. A client that closes its own streams after exactly a second gets its route a
heartbeat every second, for that hour.

Values can be off by what the clocks do not share: nginx counts from when it last
looked, up to 300 ms early, and a path counts the age from the request, the gateway from the
beginning of its response.
`

const apart = `
What cannot be told apart:

- The first streams that a path cuts, from clients that leave: nothing is known yet. They are
  called "client left", as a guess.
- A client that leaves within two per cent of a learned limit, from a stream that
  was cut. It is called the path's.
- Clients that leave after a fixed time, by a time-out of their own, say, from a
  path that cuts at that age. A limit is learned that belongs to them. It costs
  some heartbeats, or a resumption.
- A path that looks at the age only when something is sent, as Caddy does with ` + "`timeouts write`" + `,
  from one that drops quiet connections without closing them, as long as streams end at their
  first heartbeat.
- Who was at fault where a write found the stream dead: "heartbeat write failed", and the client
  as a guess.
- Which machine on the path it was.

"Server gone" is the MCP server behind the gateway. It is the gateway's own child, so that
there is no doubt: the stream has an answer that says so, and for each of them the log has "the
server ended", cause "server exited", certain. A client that cancels, deletes
its session or gets its answer says so itself and is in no table here.

A client that leaves is seen within a second on all these paths; the run fails otherwise.
Behind HAProxy that takes ` + "`option abortonclose`" + `, and behind Caddy that ` + "`flush_interval -1`" + ` is not
set; else the next heartbeat finds it out.
`

const said = `%d streams of each kind on each path, mixed, and what the log said of each of them. A path
that cuts by silence has no occasion to once that is known. So this took several gateways
for each of those, and most of the cuts are those that taught them.

`

// report is the document.
func report(versions string, paths []path, results []result, tallies []tally) string {
	var b strings.Builder
	fmt.Fprintf(&b, head, versions, long, every)
	b.WriteString("## What comes through\n\n" + legend)
	for i, p := range paths {
		if len(results) > i && results[i].path.name != "" {
			results[i].write(&b, p)
		}
	}
	fmt.Fprintf(&b, "## How it is learned\n"+learning)
	b.WriteString("\n## Who ended what\n\n")
	fmt.Fprintf(&b, said, runs)
	for i, p := range paths {
		if tallies[i] != nil {
			tallies[i].write(&b, p)
		}
	}
	b.WriteString(strings.TrimPrefix(apart, "\n"))
	return b.String()
}

func (r result) write(b *strings.Builder, p path) {
	fmt.Fprintf(b, "### %s\n\n", upper(p.title()))
	b.WriteString("| calls | client | arrived once | executions | cut | ended in order |\n| --- | --- | --- | --- | --- | --- |\n")
	rows := func(label string, all []run) {
		for _, era := range append(slices.Clone(handshake), eraStateless) {
			n, once, executions, cuts, closed := 0, 0, 0, 0, 0
			for _, one := range all {
				if one.era == era {
					n++
					executions += one.start
					cuts += one.cuts
					closed += one.closed
					if one.once() {
						once++
					}
				}
			}
			if n > 0 {
				fmt.Fprintf(b, "| %s | %s | %d of %d | %d | %d | %d |\n", label, era, once, n, executions, cuts, closed)
			}
		}
	}
	rows("`--heartbeat 1s`", r.configured)
	if p.age > 0 {
		rows("nothing known yet, clients that come back", r.resumed)
		rows("once it is learned", r.rotated)
	} else {
		rows("the default, 15 s, clients that come back", r.resumed)
	}
	rows("the default, until it is learned", r.lost)
	rows("the default, after that", r.kept)
	b.WriteString("\n")
	if r.alsoFound.value > 0 {
		fmt.Fprintf(b, "Learned from clients that come back: %v\n\n", r.alsoFound)
	}
	if r.learned.value > 0 {
		fmt.Fprintf(b, "Learned from stateless calls: %v %d of them were lost to it, and cancelled at\n"+
			"the server, as that era wants it.\n\n", r.learned, len(r.lost))
	}
}

func (f finding) String() string {
	most := ""
	if f.atMost {
		most = "at most "
	}
	return fmt.Sprintf("%s of %s%v, after %d ends.", f.kind, most, f.value.Round(time.Millisecond), f.ends)
}

func upper(s string) string {
	if strings.HasPrefix(s, "nginx") {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

func (t tally) truths(p path) []string {
	if p.age > 0 {
		return []string{clientLeft, cutAge, serverGone}
	}
	return []string{clientLeft, cutSilence, serverGone}
}

// said lists what was said, in a fixed order.
func (t tally) said() (all []cell) {
	for _, by := range t {
		for c := range by {
			if !slices.Contains(all, c) {
				all = append(all, c)
			}
		}
	}
	slices.SortFunc(all, func(a, b cell) int {
		return strings.Compare(a.who+a.cause+a.sure, b.who+b.cause+b.sure)
	})
	return all
}

func (t tally) write(b *strings.Builder, p path) {
	fmt.Fprintf(b, "### %s: who\n\n", upper(p.title()))
	said := t.said()
	b.WriteString("| what was true |")
	for _, c := range said {
		fmt.Fprintf(b, " %s, %s (%s) |", c.who, c.cause, c.sure)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", len(said)) + "\n")
	for _, truth := range t.truths(p) {
		fmt.Fprintf(b, "| %s |", truth)
		for _, c := range said {
			fmt.Fprintf(b, " %d |", t[truth][c])
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
}

// problems says what must not be in a matrix: a server's end that is called
// anything else, or a client's that is called certain.
func (t tally) problems(p path) (all []string) {
	bad := func(truth string, c cell, n int) {
		all = append(all, fmt.Sprintf("%s: %s was said of %d streams where %s is true", p.title(), c, n, truth))
	}
	wrong := 0
	for truth, by := range t {
		for c, n := range by {
			path := c.who == "path"
			switch truth {
			case serverGone:
				if c.who != "server" {
					bad(truth, c, n)
				}
			case clientLeft:
				if c.who != "client" && !path || c.sure == "certain" {
					bad(truth, c, n)
				}
				if path {
					wrong += n
				}
			default:
				if c.who != "client" && !path || c.sure == "certain" {
					bad(truth, c, n)
				}
			}
		}
	}
	if wrong > runs/4 {
		all = append(all, fmt.Sprintf("%s: %d of %d clients that left are called the path", p.title(), wrong, runs))
	}
	if p.age > 0 && t != nil {
		named := 0
		for c, n := range t[cutAge] {
			if c.cause == "path cut (age)" {
				named += n
			}
		}
		if named < runs/3 {
			all = append(all, fmt.Sprintf("%s: only %d of %d cuts by age were called that", p.title(), named, runs))
		}
	}
	return all
}

func (c cell) String() string { return fmt.Sprintf("%s, %s (%s)", c.who, c.cause, c.sure) }
