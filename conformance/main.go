// Command conformance judges what the official suite found and writes it down
// as a table.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// outcome is what one scenario came to, as the run's summary has it.
type outcome struct {
	State string   `json:"st"` // PASS, WARN, FAIL, NORUN, EMPTY, SKIP
	OK    int      `json:"S"`  // checks that passed
	Fails []string `json:"fails"`
}

// check is one entry of a scenario's checks.json.
type check struct {
	ID           string `json:"id"`
	Description  string `json:"description"`
	Status       string `json:"status"`
	ErrorMessage string `json:"errorMessage"`
	Details      struct {
		Message string `json:"message"`
	} `json:"details"`
}

// list is what the suite asks for at one revision.
type list struct {
	required []string
	unscored []string
}

// result is everything that a report is made of.
type result struct {
	lists    []list                 // as sets
	found    [][]map[string]outcome // as the columns of sets
	networks [][]map[string]outcome // as the columns of networks
	clients  []clientLeg
	tasks    map[string]outcome // of the scenarios of the tasks extension
	polling  []check
	fixture  answers
	versions []string // of the suite and the servers
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("conformance: ")
	home := flag.String("home", "", "where suite and results are")
	fixture := flag.String("fixture", "", "name and version of the dual-era server")
	python := flag.String("python", "", "name and version of what the Python server is made of")
	out := flag.String("out", "", "the document to write")
	flag.Parse()
	res, err := collect(*home, *fixture, *python)
	if err != nil {
		log.Fatal(err)
	}
	var doc strings.Builder
	write(&doc, res)
	if err := os.WriteFile(*out, []byte(doc.String()), 0o644); err != nil {
		log.Fatal(err)
	}
	if bad := judge(res); len(bad) > 0 {
		log.Fatal("not clean:\n  ", strings.Join(bad, "\n  "))
	}
}

func collect(home string, servers ...string) (result, error) {
	suite := filepath.Join(home, "node_modules/@modelcontextprotocol/conformance")
	var res result
	var pkg struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	}
	if err := readJSON(filepath.Join(suite, "package.json"), &pkg); err != nil {
		return res, err
	}
	res.versions = append([]string{pkg.Name + "@" + pkg.Version}, servers...)
	for _, s := range sets {
		l, found, err := collectSet(suite, filepath.Join(home, "out"), s)
		if err != nil {
			return res, err
		}
		res.lists, res.found = append(res.lists, l), append(res.found, found)
	}
	for _, s := range networks {
		_, found, err := collectSet(suite, filepath.Join(home, "out"), s)
		if err != nil {
			return res, err
		}
		res.networks = append(res.networks, found)
	}
	var err error
	if res.clients, err = collectClients(suite, filepath.Join(home, "out")); err != nil {
		return res, err
	}
	if res.tasks, err = collectTasks(filepath.Join(home, "out"), res.lists[len(res.lists)-1].unscored); err != nil {
		return res, err
	}
	files, err := filepath.Glob(filepath.Join(home, "out/holdfast-polling/out/*/checks.json"))
	if err != nil {
		return res, err
	}
	if len(files) != 1 {
		return res, fmt.Errorf("%d results of %s, not one", len(files), polling)
	}
	if err := readJSON(files[0], &res.polling); err != nil {
		return res, err
	}
	res.fixture, err = askFixture(home)
	return res, err
}

func collectSet(suite, out string, s set) (l list, all []map[string]outcome, err error) {
	if l, err = listOf(suite, s.revision, "server"); err != nil {
		return l, nil, err
	}
	for _, c := range s.columns {
		var found map[string]outcome
		if err := readJSON(filepath.Join(out, "holdfast-"+c.label, "summary.json"), &found); err != nil {
			return l, nil, err
		}
		all = append(all, found)
	}
	return l, all, nil
}

// listOf is what the suite asks of a leg at a revision.
func listOf(suite, revision, leg string) (list, error) {
	f, err := os.Open(filepath.Join(suite, "requirements", revision+".yaml"))
	if err != nil {
		return list{}, err
	}
	defer f.Close()
	return requirements(f, leg)
}

// taskNames are the scenarios of the tasks extension.
func taskNames(unscored []string) []string {
	return slices.DeleteFunc(slices.Clone(unscored), func(name string) bool { return !strings.HasPrefix(name, "tasks-") })
}

func collectTasks(out string, unscored []string) (map[string]outcome, error) {
	all := map[string]outcome{}
	for _, name := range taskNames(unscored) {
		var found map[string]outcome
		if err := readJSON(filepath.Join(out, "holdfast-tasks", strings.TrimPrefix(name, "tasks-"), "summary.json"), &found); err != nil {
			return nil, err
		}
		all[name] = found[name]
	}
	return all, nil
}

func readJSON(file string, into any) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// requirements reads one leg of the suite's list of a revision: the names under
// the leg's own, and those under "not_scored:" that are of this leg.
func requirements(r io.Reader, leg string) (list, error) {
	var l list
	var section, scenario string
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		key, value, _ := strings.Cut(strings.TrimLeft(line, " -"), ": ")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case !strings.HasPrefix(line, " "):
			section = strings.TrimSuffix(line, ":")
		case section == leg:
			l.required = append(l.required, key)
		case section == "not_scored" && key == "scenario":
			scenario = value
		case section == "not_scored" && key == "leg" && value == leg:
			l.unscored = append(l.unscored, scenario)
		}
	}
	if len(l.required) == 0 {
		return l, errors.New("the suite's list of required scenarios has none")
	}
	return l, lines.Err()
}

// clean says how many of the scenarios that count a column passes without a
// warning, and what speaks against it.
func clean(c column, name string, l list, found map[string]outcome) (n int, bad []string) {
	ran := 0
	for _, scenario := range slices.Concat(l.required, c.counted) {
		o, ok := found[scenario]
		if ok {
			ran++
		}
		excused := c.excuses(scenario)
		switch {
		case o.State == "PASS" && excused:
			bad = append(bad, fmt.Sprintf("%s: %s is clean, though it is said that it cannot be", name, scenario))
		case o.State == "PASS":
			n++
		case ok && !excused:
			bad = append(bad, fmt.Sprintf("%s: %s: %s %s", name, scenario, o.State, strings.Join(o.Fails, " | ")))
		}
	}
	if ran < c.total {
		bad = append(bad, fmt.Sprintf("%s: only %d of %d scenarios ran", name, ran, c.total))
	}
	for _, scenario := range c.also {
		if o := found[scenario]; o.State != "PASS" {
			bad = append(bad, fmt.Sprintf("%s: %s: %s %s", name, scenario, o.State, strings.Join(o.Fails, " | ")))
		}
	}
	return n, bad
}

func judge(res result) []string {
	all := res.fixture.judge()
	for i, s := range sets {
		for j, c := range s.columns {
			_, bad := clean(c, c.name(s), res.lists[i], res.found[i][j])
			all = append(all, bad...)
		}
	}
	for i, s := range networks {
		all = append(all, judgeNetwork(s, res.lists[i], res.networks[i])...)
	}
	for _, leg := range res.clients {
		all = append(all, leg.judge()...)
	}
	for _, name := range taskNames(res.lists[len(res.lists)-1].unscored) {
		if o := res.tasks[name]; o.State != "PASS" && (name != unchecked || o.State != "SKIP") {
			all = append(all, fmt.Sprintf("%s: %s %s", name, o.State, strings.Join(o.Fails, " | ")))
		}
	}
	for _, id := range []string{"server-sse-priming-event", "server-sse-retry-field"} {
		passed := func(c check) bool { return c.ID == id && c.Status == "SUCCESS" }
		if !slices.ContainsFunc(res.polling, passed) {
			all = append(all, polling+": "+id+" is not a SUCCESS")
		}
	}
	return all
}
