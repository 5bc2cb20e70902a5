package main

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestEvents(t *testing.T) {
	id := ""
	next := events(strings.NewReader(": hello\n\nid: 1-0\nretry: 10\ndata:\n\nevent: message\nid: 1-1\ndata: {\"a\":\ndata: 1}\n\ndata: cut"), &id)
	e, err := next()
	if err != nil || e.name != "message" || e.id != "1-1" || e.data != "{\"a\":\n1}" {
		t.Errorf("got %+v, %v", e, err)
	}
	if _, err := next(); err != io.EOF || id != "1-1" {
		t.Errorf("at the end %v, %q", err, id)
	}

	next = events(strings.NewReader("id: 2-0\ndata:\n\n"), &id)
	if _, err := next(); err != io.EOF || id != "2-0" {
		t.Errorf("an event without data left the id %q, %v", id, err)
	}
}

// TestConfigurations: what the measurements scale is in the files that are
// deployed.
func TestConfigurations(t *testing.T) {
	for name, limit := range map[string]string{"nginx.conf": "proxy_read_timeout 60s", "haproxy.cfg": "timeout server 60s", "Caddyfile": "read_timeout 60s"} {
		text, err := os.ReadFile(filepath.Join("..", "deploy", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{limit, "127.0.0.1:8080", host, "8081"} {
			if !strings.Contains(string(text), part) {
				t.Errorf("%s: no %s", name, part)
			}
		}
	}
}

func TestServer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "counts")
	in, feed := io.Pipe()
	read, out := io.Pipe()
	said := make(chan string, 100)
	go func() { // ends when the pipe is closed
		for lines := bufio.NewScanner(read); lines.Scan(); {
			said <- lines.Text()
		}
		close(said)
	}()
	defer out.Close()
	ended := make(chan error, 1)
	go func() { ended <- serve(in, out, file) }() // ends with its input
	say := func(s string) {
		if _, err := io.WriteString(feed, s+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	say(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`)
	say(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"work","arguments":{"key":"a","ms":60,"every":20},"_meta":{"progressToken":"p"}}}`)
	say(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"work","arguments":{"key":"b","ms":60000}}}`)
	for _, want := range []string{`"id":1,"result"`, `"progressToken":"p"`, `"id":2,"result"`} {
		late := time.After(10 * time.Second)
		for line := ""; !strings.Contains(line, want); {
			select {
			case line = <-said:
			case <-late:
				t.Fatalf("the server does not say %s", want)
			}
		}
	}
	say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`)
	feed.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for key, want := range map[string]counts{"a": {start: 1, end: 1}, "b": {start: 1, cancel: 1}, "c": {}} {
		var got counts
		for range 100 {
			got, _ = readCounts(file, key)
			if got == want {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if got != want {
			t.Errorf("%s: counted %+v, want %+v", key, got, want)
		}
	}
}

func TestProblems(t *testing.T) {
	good := run{outcome: outcome{answers: 1}, counts: counts{start: 1, end: 1}}
	lost := run{outcome: outcome{cuts: 1}, counts: counts{start: 1, cancel: 1}}
	found := finding{kind: "silence", value: 2900 * time.Millisecond}
	fine := func() result {
		return result{path: quiet[0], configured: []run{good}, resumed: []run{good}, lost: []run{lost}, kept: []run{good}, learned: found, alsoFound: found}
	}
	for _, c := range []struct {
		name string
		edit func(*result)
		want string
	}{
		{"all is well", func(*result) {}, ""},
		{"executed twice", func(r *result) { r.resumed[0].start = 2 }, "2 executions"},
		{"no answer", func(r *result) { r.configured[0].answers = 0 }, "0 answers"},
		{"cut below the limit", func(r *result) { r.configured[0].cuts = 1 }, "cut all the same"},
		{"not cancelled", func(r *result) { r.lost[0].cancel = 0 }, "not cancelled once"},
		{"learned wrong", func(r *result) { r.learned.value = 3400 * time.Millisecond }, "learned"},
		{"learned something else", func(r *result) { r.alsoFound.kind = "age" }, "learned"},
	} {
		r := fine()
		c.edit(&r)
		got := strings.Join(r.problems(), "\n")
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

func TestMatrixProblems(t *testing.T) {
	guess, path := cell{"client left", "client", "guess"}, cell{"path cut (age)", "path", "likely"}
	server, sure := cell{"server exited", "server", "certain"}, cell{"client left", "client", "certain"}
	for _, c := range []struct {
		name string
		t    tally
		want string
	}{
		{"all is well", tally{clientLeft: {guess: 20}, cutAge: {guess: 5, path: 15}, serverGone: {server: 20}}, ""},
		{"a server that is called a client", tally{cutAge: {path: 20}, serverGone: {guess: 1}}, "server gone is true"},
		{"a certainty that nobody can have", tally{cutAge: {path: 20}, clientLeft: {sure: 1}}, "client left is true"},
		{"nothing learned", tally{cutAge: {guess: 20}}, "only 0"},
		{"clients blamed on the path", tally{cutAge: {path: 20}, clientLeft: {path: 9, guess: 11}}, "are called the path"},
	} {
		got := strings.Join(c.t.problems(aging[0]), "\n")
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}
