// Command liveness judges real servers in every state they can be in, and
// writes down as a table which verdict was reached, why and when.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("liveness: ")
	var env surroundings
	flag.StringVar(&env.node, "node", "node", "the node to run")
	flag.StringVar(&env.python, "python", "python3", "the Python to run")
	flag.StringVar(&env.children, "children", "children", "the folder of the servers")
	out := flag.String("out", "", "the document to write; none without it")
	only := flag.String("only", "", "only the rows whose server and tool match this expression")
	workers := flag.Int("j", 4, "rows at the same time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := table(ctx, env, *only, *workers, *out)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// table runs the scenarios and writes the document. An error also says that a
// row is not as it should be.
func table(ctx context.Context, env surroundings, only string, workers int, out string) error {
	match, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	if only != "" && out != "" {
		return errors.New("a document of some rows only is none")
	}
	versions, err := versionsOf(ctx, env)
	if err != nil {
		return err
	}
	web, err := startSlowWeb()
	if err != nil {
		return err
	}
	defer web.stop()
	env.url = web.url
	rows := runAll(ctx, env, max(workers, 1), match)
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if out != "" {
		var doc strings.Builder
		write(&doc, versions, rows)
		if err := os.WriteFile(out, []byte(doc.String()), 0o644); err != nil {
			return err
		}
	}
	if bad := judge(rows); len(bad) > 0 {
		return errors.New("not as it should be:\n  " + strings.Join(bad, "\n  "))
	}
	return nil
}

// versionsOf also makes sure that what runs the servers is there.
func versionsOf(ctx context.Context, env surroundings) (all []string, err error) {
	for _, program := range []struct{ name, path string }{{"node", env.node}, {"Python", env.python}} {
		out, err := exec.CommandContext(ctx, program.path, "--version").Output()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", program.path, err)
		}
		version := strings.TrimPrefix(strings.TrimSpace(string(out)), program.name+" ")
		all = append(all, program.name+" "+version)
	}
	return all, nil
}

// runAll runs the scenarios that match, some at a time, in their order.
func runAll(ctx context.Context, env surroundings, workers int, match *regexp.Regexp) []row {
	var chosen []scenario
	for _, s := range scenarios {
		if match.MatchString(s.server + " " + s.tool) {
			chosen = append(chosen, s)
		}
	}
	rows := make([]row, len(chosen))
	turn := make(chan struct{}, workers)
	var wg sync.WaitGroup
	for i, s := range chosen {
		turn <- struct{}{}
		wg.Go(func() {
			defer func() { <-turn }()
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			rows[i] = run(ctx, env, s)
			log.Printf("%-14s %-28s %-8s after %s; call %s", s.server, s.tool, rows[i].reached, inSeconds(rows[i].after), rows[i].end)
		})
	}
	wg.Wait()
	return rows
}
