package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// judgeNetwork says what speaks against the gateway before servers on the network:
// as before others, and that what a server passes by itself it must pass there.
func judgeNetwork(s set, l list, found []map[string]outcome) (all []string) {
	for i, c := range s.columns {
		if c.plain {
			if n := len(found[i]); n < len(l.required) {
				all = append(all, fmt.Sprintf("%s: only %d scenarios ran", c.name(s), n))
			}
			continue
		}
		_, bad := clean(c, c.name(s)+" through the gateway", l, found[i])
		all = append(all, bad...)
		if c.direct == 0 {
			continue
		}
		for _, name := range slices.Concat(l.required, c.also) {
			direct, through := found[i-c.direct][name], found[i][name]
			if direct.State == "PASS" && through.State != "PASS" && c.excuses(name) {
				all = append(all, fmt.Sprintf("%s: %s is excused, though the server passes it itself", c.name(s), name))
			}
		}
	}
	return all
}

// clientLeg is what the conformance client came to at one revision, on each of
// clientWays.
type clientLeg struct {
	revision string
	list     list
	found    []map[string]outcome
}

// clientWays are the ways from the client to the suite's own server. The first has
// no gateway.
var clientWays = []struct{ label, title string }{
	{"direct", "the client itself"}, {"serve", "through `serve --upstream`"}, {"connect", "through `connect`"},
}

func collectClients(suite, out string) (legs []clientLeg, err error) {
	for _, s := range sets {
		leg := clientLeg{revision: s.revision}
		if leg.list, err = listOf(suite, s.revision, "client"); err != nil {
			return nil, err
		}
		leg.list.required = slices.DeleteFunc(leg.list.required, authorization)
		leg.list.unscored = slices.DeleteFunc(leg.list.unscored, authorization)
		for _, way := range clientWays {
			var found map[string]outcome
			if err := readJSON(fmt.Sprintf("%s/holdfast-client-%s-%s/summary.json", out, way.label, s.revision), &found); err != nil {
				return nil, err
			}
			leg.found = append(leg.found, found)
		}
		legs = append(legs, leg)
	}
	return legs, nil
}

// authorization reports whether a scenario is about OAuth, which is between the
// client and the server: the gateway passes headers on, and takes no part.
func authorization(name string) bool { return strings.HasPrefix(name, "auth/") }

// judge says what speaks against the gateway. What the client itself does not pass
// shows nothing of it, and is said as well.
func (leg clientLeg) judge() (bad []string) {
	for _, name := range slices.Concat(leg.list.required, leg.list.unscored) {
		for i, way := range clientWays {
			if o := leg.found[i][name]; o.State != "PASS" {
				bad = append(bad, fmt.Sprintf("client at %s, %s: %s: %s %s", leg.revision, strings.ReplaceAll(way.title, "`", ""), name, o.State, strings.Join(o.Fails, " | ")))
			}
		}
	}
	return bad
}

func (leg clientLeg) table(w io.Writer) {
	fmt.Fprintf(w, "| scenario at %s |", leg.revision)
	for _, way := range clientWays {
		fmt.Fprintf(w, " %s |", way.title)
	}
	fmt.Fprintf(w, "\n| --- |%s\n", strings.Repeat(" --- |", len(clientWays)))
	for i, names := range [][]string{leg.list.required, leg.list.unscored} {
		for _, name := range names {
			title := name
			if i > 0 {
				title = "(" + name + ")"
			}
			fmt.Fprintf(w, "| %s |", title)
			for j := range clientWays {
				o := leg.found[j][name]
				fmt.Fprintf(w, " %s %d |", letters[o.State], o.OK)
			}
			fmt.Fprintln(w)
		}
	}
	fmt.Fprintln(w)
}

// plainTotal is how many scenarios count before a server itself.
func (c column) plainTotal(l list) int {
	if c.plain {
		return len(l.required)
	}
	return 0
}
