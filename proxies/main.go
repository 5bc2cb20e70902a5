// Command proxies puts real proxies with short limits before a real gateway, and
// writes down what comes through and what the gateway makes of it.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"strings"
	"sync"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("proxies: ")
	server := flag.String("server", "", "be the slow MCP server, and count in this file")
	holdfast := flag.String("holdfast", "", "the gateway")
	deploy := flag.String("deploy", "../deploy", "the folder of the proxies' configurations")
	only := flag.String("only", "", "measure this path only: nginx, haproxy, caddy, cutter; writes nothing")
	part := flag.String("part", "", "calls or matrix only; writes nothing")
	versions := flag.String("versions", "", "of the proxies")
	work := flag.String("work", "", "a folder for logs")
	out := flag.String("out", "", "the document to write")
	flag.Parse()
	if *server != "" {
		if err := serve(os.Stdin, os.Stdout, *server); err != nil {
			log.Fatal(err)
		}
		return
	}
	b := &bench{holdfast: *holdfast, deploy: *deploy, dir: *work}
	if err := b.all(*only, *part, *versions, *out); err != nil {
		log.Fatal(err)
	}
}

// all measures the paths, two at a time, and writes the document if it was
// everything.
func (b *bench) all(only, part, versions, out string) error {
	var paths []path
	for _, p := range append(append([]path(nil), quiet...), aging...) {
		if only == "" || p.name == only {
			paths = append(paths, p)
		}
	}
	results := make([]result, len(paths))
	tallies := make([]tally, len(paths))
	errs := make([]error, len(paths))
	two := make(chan struct{}, 2) // more would disturb each other's times
	measure := func(i int) {
		p := paths[i]
		results[i], tallies[i], errs[i] = result{}, nil, nil
		if part != "matrix" {
			results[i] = b.measure(p)
			log.Printf("%s: calls done", p.title())
		}
		if part != "calls" {
			tallies[i], errs[i] = b.matrix(p, uint64(i+1))
			log.Printf("%s: matrix done", p.title())
		}
	}
	wrong := func(i int) (all []string) {
		if part != "matrix" {
			all = results[i].problems()
		}
		if errs[i] != nil {
			all = append(all, errs[i].Error())
		}
		return append(all, tallies[i].problems(paths[i])...)
	}
	var wg sync.WaitGroup
	for i := range paths {
		wg.Go(func() {
			two <- struct{}{}
			defer func() { <-two }()
			measure(i)
		})
	}
	wg.Wait()
	var problems []string
	for i, p := range paths {
		if again := wrong(i); len(again) > 0 {
			// A busy machine moves times that are a few seconds long.
			log.Printf("%s once more, alone, since\n%s", p.title(), strings.Join(again, "\n"))
			measure(i)
		}
		problems = append(problems, wrong(i)...)
	}
	text := report(versions, paths, results, tallies)
	if only != "" || part != "" {
		fmt.Print(text)
	} else if len(problems) == 0 {
		if err := os.WriteFile(out, []byte(text), 0o644); err != nil {
			return err
		}
	}
	if len(problems) > 0 {
		return fmt.Errorf("%d problems:\n%s", len(problems), strings.Join(problems, "\n"))
	}
	return nil
}
