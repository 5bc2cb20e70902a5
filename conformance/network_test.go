package main

import (
	"slices"
	"strings"
	"testing"
)

func TestNetworkIsJudged(t *testing.T) {
	l := list{required: []string{"ping", "tools-list"}}
	pass, fail := outcome{State: "PASS"}, outcome{State: "FAIL", Fails: []string{"x"}}
	through := column{title: "it", total: 2, direct: 1}
	excusing := through
	excusing.excused = []excuse{{"ping", "it cannot be"}}
	for _, tt := range []struct {
		name            string
		c               column
		direct, through map[string]outcome
		bad             []string
	}{
		{"all pass", through, map[string]outcome{"ping": pass, "tools-list": pass}, map[string]outcome{"ping": pass, "tools-list": pass}, nil},
		{"more than itself", through, map[string]outcome{"ping": fail, "tools-list": pass}, map[string]outcome{"ping": pass, "tools-list": pass}, nil},
		{"less", through, map[string]outcome{"ping": pass, "tools-list": pass}, map[string]outcome{"ping": fail, "tools-list": pass},
			[]string{"it at r through the gateway: ping: FAIL x"}},
		{"neither", excusing, map[string]outcome{"ping": fail, "tools-list": pass}, map[string]outcome{"ping": fail, "tools-list": pass}, nil},
		{"an excuse that is none", excusing, map[string]outcome{"ping": pass, "tools-list": pass}, map[string]outcome{"ping": fail, "tools-list": pass},
			[]string{"it at r: ping is excused, though the server passes it itself"}},
		{"not compared", through, map[string]outcome{"ping": pass}, map[string]outcome{"ping": pass, "tools-list": pass}, []string{"alone at r: only 1 scenarios ran"}},
	} {
		s := set{"r", []column{{title: "alone", plain: true}, tt.c}}
		if bad := judgeNetwork(s, l, []map[string]outcome{tt.direct, tt.through}); !slices.Equal(bad, tt.bad) {
			t.Errorf("%s: got %q, want %q", tt.name, bad, tt.bad)
		}
	}
}

// TestEachHasItsOwn: a column names that of the server itself.
func TestEachHasItsOwn(t *testing.T) {
	for _, s := range networks {
		for i, c := range s.columns {
			if c.direct == 0 {
				continue
			}
			own := s.columns[i-c.direct]
			if want := strings.Replace(c.label, "up-", "direct-", 1); own.label != want || !own.plain {
				t.Errorf("%s is compared with %s", c.label, own.label)
			}
		}
	}
}

func TestClientLegIsJudged(t *testing.T) {
	pass := map[string]outcome{"tools_call": {State: "PASS", OK: 2}, "more": {State: "PASS"}}
	leg := clientLeg{"r", list{required: []string{"tools_call"}, unscored: []string{"more"}}, []map[string]outcome{pass, pass, pass}}
	if bad := leg.judge(); len(bad) > 0 {
		t.Errorf("all pass: %q", bad)
	}
	leg.found[2] = map[string]outcome{"tools_call": {State: "FAIL", Fails: []string{"x"}}}
	want := []string{"client at r, through connect: tools_call: FAIL x", "client at r, through connect: more:  "}
	if bad := leg.judge(); !slices.Equal(bad, want) {
		t.Errorf("got %q, want %q", bad, want)
	}
	var doc strings.Builder
	leg.table(&doc)
	if !strings.Contains(doc.String(), "| tools_call | P 2 | P 2 | **F** 0 |\n| (more) |") {
		t.Errorf("the table is\n%s", doc.String())
	}
}
