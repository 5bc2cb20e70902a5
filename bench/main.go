// Command bench judges the results of the load runs and writes them down as
// tables.
package main

import (
	_ "embed"
	"flag"
	"fmt"
	"log"
	"os"
	"strings"
)

//go:embed peers.md
var peers string

func main() {
	log.SetFlags(0)
	log.SetPrefix("bench: ")
	from := flag.String("results", "", "what the load tool wrote")
	gotxt := flag.String("go", "", "what `go test -bench` wrote")
	out := flag.String("out", "", "the document to write")
	smoke := flag.Bool("check", false, "write nothing; fail when an answer went astray")
	flag.Parse()

	f, err := os.Open(*from)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	res, err := load(f)
	if err != nil {
		log.Fatal(err)
	}
	if *smoke {
		if bad := check(res); len(bad) > 0 {
			log.Fatal("not right:\n  ", strings.Join(bad, "\n  "))
		}
		return
	}
	gobench, err := os.ReadFile(*gotxt)
	if err != nil {
		log.Fatal(err)
	}
	var doc strings.Builder
	write(&doc, res, machine(), string(gobench))
	if err := os.WriteFile(*out, []byte(doc.String()), 0o644); err != nil {
		log.Fatal(err)
	}
	for _, t := range targets(res) {
		if !t.met {
			log.Printf("not met: %s: %s, promised %s", t.what, t.measured, t.promised)
		}
	}
}

// mustBeZero are the counts that no run of any load may raise.
var mustBeZero = []string{"errors", "wrong_replies", "foreign_messages", "lost", "misrouted", "out_of_order_or_twice", "gateway_died"}

// check names what a smoke run did wrong. It looks at answers only: figures of
// a second or two on a busy machine mean nothing.
func check(res results) []string {
	var bad []string
	for key, rs := range res {
		for _, rec := range rs {
			if rec.Error != "" {
				bad = append(bad, key+": "+rec.Error)
			}
		}
		for _, name := range mustBeZero {
			if n := rs.worst(name); n > 0 {
				bad = append(bad, fmt.Sprintf("%s: %s is %g", key, name, n))
			}
		}
	}
	for _, b := range bindings {
		slow := res.of("smoke-slow", "holdfast-"+b.name)
		if before, during := slow.median("before", "calls_per_s"), slow.median("during", "calls_per_s"); during <= before/20 {
			bad = append(bad, fmt.Sprintf("a client that does not read stops the others over %s: %.0f calls/s, then %.0f", b.title, before, during))
		}
		if rs := res.of("smoke-calls", "holdfast-"+b.name); rs.median("calls") == 0 {
			bad = append(bad, "no call over "+b.title)
		}
		if rs := res.of("smoke-progress", "holdfast-"+b.name); rs.median("delivered") == 0 {
			bad = append(bad, "no progress over "+b.title)
		}
	}
	long := res.of("smoke-longcall", "holdfast-"+streamable)
	if long.median("arrived") != 1 || long.worst("tool_started") != 1 {
		bad = append(bad, fmt.Sprintf("a cut call: arrived %g, executions %g", long.median("arrived"), long.worst("tool_started")))
	}
	return bad
}
