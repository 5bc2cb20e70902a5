package main

import (
	"bufio"
	"slices"
	"strings"
	"testing"
)

const yaml = `# a comment
server:
  - ping
  - tools-list

client:
  - initialize

not_scored:
  - scenario: auth/dpop
    leg: client
    reason: extension
  - scenario: server-session-lifecycle
    leg: server
    reason: added-after-release
`

func TestRequirements(t *testing.T) {
	l, err := requirements(strings.NewReader(yaml), "server")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"ping", "tools-list"}; !slices.Equal(l.required, want) {
		t.Errorf("required: got %q, want %q", l.required, want)
	}
	if want := []string{lifecycle}; !slices.Equal(l.unscored, want) {
		t.Errorf("unscored: got %q, want %q", l.unscored, want)
	}
	if l, err = requirements(strings.NewReader(yaml), "client"); err != nil || !slices.Equal(l.required, []string{"initialize"}) || !slices.Equal(l.unscored, []string{"auth/dpop"}) {
		t.Errorf("of the client's leg: %+v, %v", l, err)
	}
	if _, err := requirements(strings.NewReader("client:\n  - ping\n"), "server"); err == nil {
		t.Error("a list without server scenarios was taken")
	}
}

func TestClean(t *testing.T) {
	l := list{required: []string{"ping", "tools-list"}}
	c := column{total: 2, also: []string{lifecycle}}
	excusing := column{total: 2, excused: []excuse{{"ping", "it cannot be"}}}
	pass, fail := outcome{State: "PASS"}, outcome{State: "FAIL"}
	for _, tt := range []struct {
		name  string
		c     column
		found map[string]outcome
		n     int
		bad   []string
	}{
		{"all pass", c, map[string]outcome{"ping": pass, "tools-list": pass, lifecycle: pass}, 2, nil},
		{"a warning", c, map[string]outcome{"ping": pass, "tools-list": {State: "WARN", Fails: []string{"x"}}, lifecycle: pass}, 1,
			[]string{"http: tools-list: WARN x"}},
		{"nothing checked", c, map[string]outcome{"ping": pass, "tools-list": {State: "EMPTY"}, lifecycle: pass}, 1,
			[]string{"http: tools-list: EMPTY "}},
		{"not run", c, map[string]outcome{"ping": pass, lifecycle: pass}, 1, []string{"http: only 1 of 2 scenarios ran"}},
		{"no life cycle", c, map[string]outcome{"ping": pass, "tools-list": pass}, 2, []string{"http: " + lifecycle + ":  "}},
		{"excused", excusing, map[string]outcome{"ping": fail, "tools-list": pass}, 1, nil},
		{"excused and not run", excusing, map[string]outcome{"tools-list": pass}, 1, []string{"http: only 1 of 2 scenarios ran"}},
		{"excused for nothing", excusing, map[string]outcome{"ping": pass, "tools-list": pass}, 1,
			[]string{"http: ping is clean, though it is said that it cannot be"}},
	} {
		n, bad := clean(tt.c, "http", l, tt.found)
		if n != tt.n || !slices.Equal(bad, tt.bad) {
			t.Errorf("%s: got %d %q, want %d %q", tt.name, n, bad, tt.n, tt.bad)
		}
	}
}

// nothing is a result in which no scenario ran.
func nothing() result {
	var res result
	for _, s := range sets {
		res.lists = append(res.lists, list{})
		res.found = append(res.found, make([]map[string]outcome, len(s.columns)))
	}
	for _, s := range networks {
		res.networks = append(res.networks, make([]map[string]outcome, len(s.columns)))
	}
	return res
}

func TestPollingIsJudged(t *testing.T) {
	res := nothing()
	res.polling = []check{{ID: "server-sse-priming-event", Status: "SUCCESS"}, {ID: "server-sse-retry-field", Status: "WARNING"}}
	bad := judge(res)
	if want := "server-sse-polling: server-sse-retry-field is not a SUCCESS"; !slices.Contains(bad, want) {
		t.Errorf("judge says %q, not %q", bad, want)
	}
	if slices.ContainsFunc(bad, func(s string) bool { return strings.Contains(s, "priming") }) {
		t.Errorf("judge holds a passed check against the gateway: %q", bad)
	}
}

func TestTasksAreJudged(t *testing.T) {
	res := nothing()
	res.lists[len(res.lists)-1].unscored = []string{"tasks-lifecycle", "tasks-wire-fields", unchecked, lifecycle}
	res.tasks = map[string]outcome{"tasks-lifecycle": {State: "PASS"}, "tasks-wire-fields": {State: "SKIP"}, unchecked: {State: "SKIP"}}
	bad := strings.Join(judge(res), "\n")
	for name, want := range map[string]bool{"tasks-lifecycle:": false, "tasks-wire-fields: SKIP": true, unchecked + ":": false} {
		if strings.Contains(bad, name) != want {
			t.Errorf("judge on %s: %s", name, bad)
		}
	}
}

func TestEveryExcuseIsShown(t *testing.T) {
	a := answers{refusals: map[string]string{}, second: []byte(`{"content":[],"inputRequests":{"step2":{}}}`)}
	for scenario := range toolOf {
		a.refusals[scenario] = "elicitation failed: " + refusal
	}
	if bad := a.judge(); len(bad) > 0 {
		t.Errorf("good answers are held against the fixture: %q", bad)
	}
	a.refusals["tools-call-sampling"] = "the model says 4"
	a.second = []byte(`{"resultType":"input_required","inputRequests":{"step2":{}}}`)
	if bad := a.judge(); len(bad) != 2 {
		t.Errorf("of two answers that show nothing, these were found: %q", bad)
	}
}

func TestAnswersOfAServer(t *testing.T) {
	lines := `{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{}}
{"jsonrpc":"2.0","method":"notifications/message","params":{}}
{"jsonrpc":"2.0","id":1,"result":{"content":[{"text":"a"},{"text":"b"}]}}
{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}
`
	var sent strings.Builder
	c := conversation{&sent, bufio.NewScanner(strings.NewReader(lines))}
	result, err := c.call("tools/call", "{}")
	if got := texts(result); err != nil || got != "ab" {
		t.Errorf("the texts are %q, %v", got, err)
	}
	if want := `"id":7,"result":{"action":"accept"`; !strings.Contains(sent.String(), want) {
		t.Errorf("the question was not answered: %s", sent.String())
	}
	for _, want := range []string{"-32601", "no answer"} {
		if _, err := c.call("tools/call", "{}"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %s", err, want)
		}
	}
}

func TestReport(t *testing.T) {
	res := nothing()
	res.versions = []string{"suite", "server", "python"}
	for i := range sets {
		res.lists[i] = list{required: []string{"ping", multiRound}, unscored: []string{polling, "tasks-lifecycle"}}
		for j := range sets[i].columns {
			res.found[i][j] = map[string]outcome{"ping": {State: "PASS"}, multiRound: {State: "FAIL"}, polling: {State: "EMPTY"}}
		}
	}
	res.tasks = map[string]outcome{"tasks-lifecycle": {State: "PASS", OK: 9}}
	var doc strings.Builder
	write(&doc, res)
	for _, want := range []string{
		"| ping | P | P | P | P |\n",
		"| " + multiRound + " | **F** | x | **F** | **F** |\n",
		"| (" + polling + ") | P/e | e | e | e | P/e | P/e | P/e |\n",
		"| tasks-lifecycle | P | 9 |\n",
	} {
		if !strings.Contains(doc.String(), want) {
			t.Errorf("no %q in\n%s", want, doc.String())
		}
	}
	if strings.Contains(doc.String(), "(tasks-lifecycle)") {
		t.Error("an extension's scenario is in the table of a revision")
	}
}
