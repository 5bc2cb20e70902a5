package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

const head = `# Conformance

Made by ` + "`make conformance`" + `; do not edit. The official suite runs before a real
` + "`holdfast serve`" + ` process with a real stdio server behind it, on one URL for all
revisions.

- suite: %s
- dual-era server: %s, its everything-server, which speaks 2026-07-28 and what was before it
- legacy-only: the same behind a filter that refuses whatever belongs to 2026-07-28, as older servers do
- modern-only: the same behind a filter that refuses ` + "`initialize`" + `
- legacy Python: ` + "`conformance/fixtures/fastmcp_everything.py`" + ` on %s, a server that knows nothing of 2026-07-28

The gateways before legacy-only and legacy Python have ` + "`--warm 3 --answer-grace 500ms`" + `: on a
busy machine those servers take longer to start and to answer than the suite waits in some
checks, and the status of an error can be chosen only until the stream begins. All else is as
it comes.

P: every check passed. w: a warning. F: a failure. e: nothing was checked.
–: not part of that run. x: cannot be clean before that server, see below.
Scenarios in brackets are not scored by the suite.

`

const shims = `
The 27 scenarios at 2025-06-18 are 26 of these and the session life cycle.
The suite speaks Streamable HTTP only. The columns for HTTP+SSE and stdio go
through a small pass-through that turns it into HTTP+SSE, or into the standard
input and output of ` + "`MCP_TRANSPORT=stdio holdfast serve`" + `. There,
` + "`dns-rebinding-protection`" + `, ` + "`server-session-lifecycle`" + ` and ` + "`server-sse-polling`" + ` judge
the pass-through, not the gateway; all the others judge both.

`

const tasks = `
### Tasks

The scenarios of the extension ` + "`io.modelcontextprotocol/tasks`" + `, which the suite does not
score, before ` + "`conformance/fixtures/tasks/main.go`" + `: a plain stdio server of 2025-11-25 that
knows nothing of tasks, and asks by elicitation. The tasks are the gateway's. Which calls
become some, and when, is set in ` + "`conformance/fixtures/tasks.yaml`" + `.

| scenario | | checks passed |
| --- | --- | --- |
`

const unpassed = `
The one check of ` + "`tasks-status-notifications`" + ` is skipped by the suite itself, which cannot yet
listen where the extension sends them. The project's own tests do.

`

const networkHead = `## Before servers on the network

The same suite before ` + "`holdfast serve --upstream URL`" + `, and before each server itself, which is
%s again, its everything-server: with sessions,
without, by HTTP+SSE, and both eras on one URL (the last two by ` + "`conformance/fixtures/network/main.go`" + `).
What a server passes itself it must pass through the gateway. The suite reaches the HTTP+SSE
server itself through the pass-through, which has no 2026-07-28.

`

const networkFoot = `
The third check of ` + "`server-sse-polling`" + ` wants a stream that the server cuts to be resumed. The
server of both eras cuts it and keeps events: the gateway, its client, resumes it. The stateless
one cuts it too, and has nothing to resume it with: the call ends with an error that says so (w).

`

const clientHead = `## The client's side

Here the suite is the server, and go-sdk's everything-client the client: directly, with
` + "`holdfast serve --upstream`" + ` between, and with ` + "`holdfast connect`" + ` between, which speaks stdio and is
reached by the client through the pass-through. The pass-through has no 2026-07-28, so with
` + "`connect`" + ` at that revision the client is one of the handshake era and the server is not.
The number is that of the checks that passed. The scenarios ` + "`auth/*`" + ` are between client and server,
and not run.

`

const excusesHead = `## What cannot be clean

`

const refusalsHead = `
What the dual-era server itself answers in the four of modern-only, asked at 2026-07-28 on its
standard input with no gateway before it (the run fails should it no longer do so):

| scenario | text of the result |
| --- | --- |
`

const secondRound = `
And what it answers at 2025-11-25 to ` + "`test_input_required_result_multi_round`" + ` once the
first round's question, an ` + "`elicitation/create`" + `, is answered:

` + "```json\n%s\n```" + `

`

const pollingHead = `## server-sse-polling, check by check

The tool of this scenario answers after 100 ms, which is also the default
` + "`--answer-grace`" + `: in the table above, chance decides between a JSON body (e) and
a stream (P). So it is run once more with ` + "`--answer-grace 20ms`" + `:

| check | status | what was seen |
| --- | --- | --- |
`

const pollingWhy = `
What the suite wants to see on the POST's stream: a first event that has an id
and empty data, and a ` + "`retry`" + ` field. The gateway sends both to clients of
2025-11-25.

The third check wants the server to close that stream before the answer, so that
the client comes back with ` + "`Last-Event-ID`" + ` and gets the answer there. In this
scenario it is the *tool* that asks for the cut, by a call into its SDK's HTTP
transport. A server on stdio has no such transport, and no message of the protocol
carries the wish, so a gateway before a stdio server cannot know of it: the answer
comes on the first stream and the check stays INFO, which is neither passed nor
failed. That a cut stream is resumed, whoever cut it, is tested by the
project's own tests.
`

// letters are the states of a run's summary in the table.
var letters = map[string]string{"PASS": "P", "WARN": "w", "FAIL": "**F**", "NORUN": "**F**", "EMPTY": "e", "SKIP": "e", "": "–"}

func write(w io.Writer, res result) {
	fmt.Fprintf(w, head, res.versions[0], res.versions[1], res.versions[2])
	for i, s := range sets {
		fmt.Fprintf(w, "## At %s\n\n", s.revision)
		table(w, s, res.lists[i], res.found[i])
		if i == 0 {
			fmt.Fprint(w, shims)
		} else {
			fmt.Fprint(w, tasks)
			for _, name := range taskNames(res.lists[i].unscored) {
				fmt.Fprintf(w, "| %s | %s | %d |\n", name, letters[res.tasks[name].State], res.tasks[name].OK)
			}
			fmt.Fprint(w, unpassed)
		}
	}
	fmt.Fprintf(w, networkHead, res.versions[1])
	for i, s := range networks {
		fmt.Fprintf(w, "### Servers on the network at %s\n\n", s.revision)
		table(w, s, res.lists[i], res.networks[i])
		if i == 0 {
			fmt.Fprintln(w)
		}
	}
	fmt.Fprint(w, networkFoot)
	fmt.Fprint(w, clientHead)
	for _, leg := range res.clients {
		leg.table(w)
	}
	excuses(w, res.fixture)
	fmt.Fprint(w, pollingHead)
	for _, c := range res.polling {
		if !strings.HasPrefix(c.ID, "server-sse-") {
			continue // the suite's own trace of what it sent and received
		}
		seen := c.ErrorMessage
		if seen == "" {
			seen = c.Details.Message
		}
		if seen == "" {
			seen = c.Description
		}
		fmt.Fprintf(w, "| `%s` | %s | %s |\n", c.ID, c.Status, cell(seen))
	}
	fmt.Fprint(w, pollingWhy)
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

func table(w io.Writer, s set, l list, found []map[string]outcome) {
	fmt.Fprint(w, "| scenario |")
	for _, c := range s.columns {
		fmt.Fprintf(w, " %s |", c.title)
	}
	fmt.Fprintf(w, "\n| --- |%s\n", strings.Repeat(" --- |", len(s.columns)))
	for _, name := range l.required {
		row(w, s, name, name, found)
	}
	for _, name := range shown(l.unscored) {
		row(w, s, "("+name+")", name, found)
	}
	fmt.Fprint(w, "| **clean, of those that count** |")
	for i, c := range s.columns {
		n, _ := clean(c, "", l, found[i])
		fmt.Fprintf(w, " **%d/%d** |", n, max(c.total, c.plainTotal(l)))
	}
	fmt.Fprintln(w)
}

// shown are the scenarios that are not scored, but in the table.
func shown(unscored []string) []string {
	return slices.DeleteFunc(slices.Clone(unscored), func(name string) bool { return strings.HasPrefix(name, "tasks-") })
}

func row(w io.Writer, s set, title, name string, found []map[string]outcome) {
	fmt.Fprintf(w, "| %s |", title)
	for i, c := range s.columns {
		letter := letters[found[i][name].State]
		// A JSON body or a stream, by a hair: see below the tables.
		if name == polling && !c.plain && strings.HasSuffix(c.label, s.revision) && (letter == "P" || letter == "e") {
			letter = "P/e"
		}
		if c.excuses(name) && letter != "P" {
			letter = "x"
		}
		fmt.Fprintf(w, " %s |", letter)
	}
	fmt.Fprintln(w)
}

func excuses(w io.Writer, a answers) {
	fmt.Fprint(w, excusesHead)
	for _, s := range slices.Concat(sets, networks) {
		for _, c := range s.columns {
			for i, e := range c.excused {
				if i == 0 || e.reason != c.excused[i-1].reason {
					fmt.Fprintf(w, "- %s: %s.\n", named(c, s, e.reason), e.reason)
				}
			}
		}
	}
	fmt.Fprint(w, refusalsHead)
	for _, e := range modernOnly {
		fmt.Fprintf(w, "| %s | %s |\n", e.scenario, cell(a.refusals[e.scenario]))
	}
	fmt.Fprintf(w, secondRound, a.second)
}

// named is a column with those of its scenarios that have the one excuse.
func named(c column, s set, reason string) string {
	var names []string
	for _, e := range c.excused {
		if e.reason == reason {
			names = append(names, "`"+e.scenario+"`")
		}
	}
	return c.name(s) + ", " + strings.Join(names, ", ")
}
