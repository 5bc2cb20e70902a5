package main

import "strings"

// set is what the suite asks for at one revision, with a column for each way
// to be asked.
type set struct {
	revision string
	columns  []column
}

// column is one run of the suite before one gateway.
type column struct {
	label   string // names the run's folder
	title   string
	total   int      // scenarios that count: those required that apply, and counted
	counted []string // counted though the suite requires them at no revision
	also    []string // not counted, and must be clean all the same
	excused []excuse // cannot be clean, whatever a gateway does
	plain   bool     // of the server itself, with no gateway: not judged
	direct  int      // of a gateway before a server on the network: how many columns before it that server's own is; 0: none
}

// excuse is why a scenario cannot be clean before one server. It is judged
// too: a scenario that is clean after all needs none.
type excuse struct {
	scenario string
	reason   string
}

const (
	lifecycle   = "server-session-lifecycle"
	jsonSchema  = "json-schema-2020-12"
	polling     = "server-sse-polling"
	unchecked   = "tasks-status-notifications" // has no checks yet: its only one is skipped by the suite itself
	multiRound  = "input-required-result-multi-round"
	extraParams = "input-required-result-ignore-extra-params"

	cannotAsk  = "this server keeps no sessions, and so has no way to ask a client of the handshake era; it does not pass these itself"
	asksOfUser = "their tools call the function of go-sdk that asks a client of the handshake era, and go-sdk refuses that while it serves 2026-07-28"
)

// keyed are excused before every server that does not itself speak of multiple
// round trips: the suite answers, or looks for, a key that only such a server
// can choose.
var keyed = []excuse{
	{"input-required-result-basic-elicitation", "the suite wants the question under the key `user_name`. " +
		"A request of the handshake era has no key that could say so; the gateway names the questions itself"},
	{extraParams, "its only request brings an answer for `user_name`, unasked and without a `requestState`. " +
		"A tool of the handshake era asks once it runs, and takes no answer before"},
}

// modernOnly and multiRoundOnce are shown by the fixture's own answers, see fixture.go.
var (
	modernOnly = []excuse{
		{"tools-call-sampling", asksOfUser}, {"tools-call-elicitation", asksOfUser},
		{"elicitation-sep1034-defaults", asksOfUser}, {"elicitation-sep1330-enums", asksOfUser},
	}
	multiRoundOnce = excuse{multiRound, "to a client of the handshake era, go-sdk puts only the first round of such a tool; " +
		"the second it returns as the result. Before the Python server, whose tool just asks twice, the scenario is clean"}
)

var sets = []set{
	{"2025-11-25", []column{
		{label: "dual-2025-11-25", title: "dual-era server", total: 30, also: []string{lifecycle, jsonSchema}},
		{label: "dual-2025-06-18", title: "the same at 2025-06-18", total: 27, counted: []string{lifecycle}},
		{label: "sse", title: "the same by HTTP+SSE", total: 30},
		{label: "stdio", title: "the same by stdio", total: 30},
		{label: "legacy-2025-11-25", title: "legacy-only", total: 30, also: []string{lifecycle, jsonSchema}},
		{label: "python-2025-11-25", title: "legacy Python", total: 30, also: []string{lifecycle, jsonSchema}},
		{label: "modern-2025-11-25", title: "modern-only", total: 30, also: []string{lifecycle, jsonSchema}, excused: modernOnly},
	}},
	{"2026-07-28", []column{
		{label: "dual-2026-07-28", title: "dual-era server", total: 37, also: modernAlso},
		{label: "legacy-2026-07-28", title: "legacy-only", total: 37, also: modernAlso, excused: append([]excuse{multiRoundOnce}, keyed...)},
		{label: "python-2026-07-28", title: "legacy Python", total: 37, also: modernAlso, excused: keyed},
		{label: "modern-2026-07-28", title: "modern-only", total: 37, also: modernAlso},
	}},
}

var modernAlso = []string{jsonSchema, "http-header-validation", "http-custom-header-server-validation"}

// sessionless is shown by the server's own column.
var sessionless = []excuse{
	{"tools-call-sampling", cannotAsk}, {"tools-call-elicitation", cannotAsk},
	{"elicitation-sep1034-defaults", cannotAsk}, {"elicitation-sep1330-enums", cannotAsk},
}

var legacyModern = append([]excuse{multiRoundOnce}, keyed...)

// networks are the runs before servers on the network, each beside that of the
// server itself.
var networks = []set{
	{"2025-11-25", []column{
		{label: "direct-stateful-2025-11-25", title: "stateful, itself", plain: true},
		{label: "up-stateful-2025-11-25", title: "stateful", total: 30, also: []string{lifecycle, jsonSchema}, direct: 1},
		{label: "direct-stateless-2025-11-25", title: "stateless, itself", plain: true},
		{label: "up-stateless-2025-11-25", title: "stateless", total: 30, also: []string{lifecycle, jsonSchema}, direct: 1, excused: sessionless},
		{label: "direct-sse-2025-11-25", title: "HTTP+SSE, itself", plain: true},
		{label: "up-sse-2025-11-25", title: "HTTP+SSE", total: 30, also: []string{lifecycle, jsonSchema}, direct: 1},
		{label: "direct-both-2025-11-25", title: "both eras, itself", plain: true},
		{label: "up-both-2025-11-25", title: "both eras", total: 30, also: []string{lifecycle, jsonSchema}, direct: 1},
	}},
	{"2026-07-28", []column{
		{label: "direct-stateful-2026-07-28", title: "stateful, itself", plain: true},
		{label: "up-stateful-2026-07-28", title: "stateful", total: 37, also: modernAlso, direct: 1, excused: legacyModern},
		{label: "direct-stateless-2026-07-28", title: "stateless, itself", plain: true},
		{label: "up-stateless-2026-07-28", title: "stateless", total: 37, also: modernAlso, direct: 1},
		{label: "up-sse-2026-07-28", title: "HTTP+SSE", total: 37, also: modernAlso, excused: legacyModern},
		{label: "direct-both-2026-07-28", title: "both eras, itself", plain: true},
		{label: "up-both-2026-07-28", title: "both eras", total: 37, also: modernAlso, direct: 1},
	}},
}

func (c column) excuses(scenario string) bool {
	for _, e := range c.excused {
		if e.scenario == scenario {
			return true
		}
	}
	return false
}

// name is how a message calls the column.
func (c column) name(s set) string { return strings.TrimPrefix(c.title+" at "+s.revision, "the same ") }
