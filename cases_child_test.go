package holdfast_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/internal/testkit"
)

// Cases of kind f with real child processes: their death and their stderr.

// quickExit keeps the race detector from holding up the end of a process.
const quickExit = "GORACE=atexit_sleep_ms=0"

// scripted is the server of testkit as a child process. Its effects are
// counted in a file.
func scripted(t *testing.T, args ...string) (s holdfast.Server, counts string) {
	t.Helper()
	counts = filepath.Join(t.TempDir(), "counts")
	path, argv, env := testkit.Command(append(args, "-counts="+counts)...)
	s = holdfast.Command(path, argv...)
	s.Env, s.Name, s.StopTimeout = append(env, quickExit), "scripted", time.Second
	return s, counts
}

// wantRuns holds how often an effect was begun.
func wantRuns(t *testing.T, counts, key string, want int) {
	t.Helper()
	if n, err := testkit.ReadCounts(counts, key); err != nil || n.Start != want {
		t.Errorf("%q ran %d times (%v), want %d", key, n.Start, err, want)
	}
}

// running waits until a counted call has begun.
func (b *bench) running(counts, key string) {
	b.t.Helper()
	b.within(bound, key+" runs", func() bool { n, _ := testkit.ReadCounts(counts, key); return n.Start == 1 })
}

// C35 (i): each pending call ends at once with what there is to know; another
// session is not disturbed, and the next call is served.
func TestC35ChildDies(t *testing.T) {
	for name, open := range bindings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, counts := scripted(t)
			really(t, setup{options: holdfast.Options{Server: server}}, func(t *testing.T, b *bench) {
				other, c := b.streamable(v11), open(b, v06)
				other.send(toolCall("1", "sleep", `{"ms":1000,"key":"other"}`, ""))
				streams := []*stream{
					c.send(toolCall("1", "sleep", `{"ms":60000,"key":"a"}`, "")),
					c.send(toolCall(`"2"`, "sleep", `{"ms":60000,"key":"b"}`, "")),
				}
				b.running(counts, "a")
				b.running(counts, "b")
				before := time.Now()
				c.send(toolCall("3", "crash", `{"code":17,"stderr":"it is broken"}`, ""))
				for _, id := range []string{"1", `"2"`, "3"} {
					got := c.answer(id)
					for _, want := range []string{`"code":-32603`, `"outcome":"unknown"`, "exited with status 17", "it is broken"} {
						if !strings.Contains(got, want) {
							t.Errorf("%s was answered with %s, want %s", id, got, want)
						}
					}
				}
				if d := time.Since(before); d > time.Second {
					t.Errorf("the answers took %v", d)
				}
				for _, s := range streams {
					s.done() // the response ends with its answer
				}
				if got := c.ask(toolCall("4", "echo", `{"text":"back"}`, "")); !strings.Contains(got, "back") {
					t.Errorf("the next call was answered with %s", got)
				}
				if got := other.answer("1"); !strings.Contains(got, "slept") {
					t.Errorf("the other session's call was answered with %s", got)
				}
			})
			for _, key := range []string{"a", "b", "other"} {
				wantRuns(t, counts, key, 1) // nothing is replayed
			}
		})
	}
}

// C35 (iv): what was written in full is delivered, though nobody is left.
func TestC35ChildExitsAfterReply(t *testing.T) {
	t.Parallel()
	server, _ := scripted(t)
	really(t, setup{options: holdfast.Options{Server: server}}, func(t *testing.T, b *bench) {
		c := b.streamable(v11)
		for i := range 2 { // later restarts wait longer
			if got := c.ask(toolCall(fmt.Sprint(i), "exit-after-reply", `{"code":0}`, "")); !strings.Contains(got, `"bye"`) {
				t.Errorf("call %d was answered with %s", i, got)
			}
			b.within(bound, "the next life", func() bool { return len(b.log.lines("started again")) == i+1 })
		}
	})
}

// C35 (iii): a server that hears nothing any more is as good as dead.
func TestC35ChildClosesItsInput(t *testing.T) {
	t.Parallel()
	server, counts := scripted(t)
	server.StopTimeout = 3 * time.Second
	really(t, setup{options: holdfast.Options{Server: server}}, func(t *testing.T, b *bench) {
		c := b.streamable(v11)
		c.send(toolCall("1", "sleep", `{"ms":60000,"key":"a"}`, ""))
		b.running(counts, "a")
		c.ask(toolCall("2", "close-stdin", `{"ms":60000}`, ""))
		before := time.Now()
		for id := 3; len(c.open()) > 0 && time.Since(before) < bound; id++ { // the first may still fit into the pipe
			c.ask(toolCall(fmt.Sprint(id), "echo", `{"text":"x"}`, ""))
		}
		if got := c.answer("1"); !strings.Contains(got, "-32603") {
			t.Errorf("the pending call was answered with %s", got)
		}
		if d := time.Since(before); d > time.Second {
			t.Errorf("the answers took %v", d)
		}
		if got := c.ask(toolCall(`"next"`, "echo", `{"text":"back"}`, "")); !strings.Contains(got, "back") {
			t.Errorf("the next call was answered with %s", got)
		}
	})
	wantRuns(t, counts, "a", 1)
}

// C35 (ii): a command that cannot be started is told to who asks, and to nobody
// else. What only Windows can do wrong, and a fork that fails, stay untested.
func TestC35ChildCannotStart(t *testing.T) {
	t.Parallel()
	missing := holdfast.Options{Server: holdfast.Command("/no/such/holdfast-server")}
	g, err := holdfast.New(missing)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "/no/such/holdfast-server") {
		t.Errorf("Start returned %v", err)
	}
	_ = g.Stop(t.Context())

	server, _ := scripted(t)
	command := filepath.Join(t.TempDir(), "server"+filepath.Ext(server.Command))
	if err := os.Link(server.Command, command); err != nil {
		if err = copyFile(command, server.Command); err != nil {
			t.Fatal(err)
		}
	}
	server.Command, server.Warm = command, -1
	really(t, setup{options: holdfast.Options{Server: server}}, func(t *testing.T, b *bench) {
		busy := b.streamable(v11)
		busy.send(toolCall("1", "sleep", `{"ms":1000}`, "")).open()
		if err := os.Rename(command, command+".gone"); err != nil {
			t.Fatal(err)
		}
		s := b.client().send(hello("1", v11, "{}")).done()
		if s.status != http.StatusServiceUnavailable || s.header.Get("Retry-After") == "" || !strings.Contains(string(s.body), `"id":1,"error"`) ||
			!strings.Contains(string(s.body), "not found") {
			t.Errorf("answered with %d %v %s", s.status, s.header, s.body)
		}
		old := b.client()
		old.listen("/sse", "")
		if s := old.send(hello("1", v2024, "{}")).done(); s.status != http.StatusServiceUnavailable {
			t.Errorf("HTTP+SSE: answered with %d %s", s.status, s.body)
		}
		if got := busy.answer("1"); !strings.Contains(got, "slept") {
			t.Errorf("the other session's call was answered with %s", got)
		}
		if err := os.Rename(command+".gone", command); err != nil {
			t.Fatal(err)
		}
		b.streamable(v11).ask(toolCall("1", "echo", `{"text":"x"}`, ""))
	})
}

func copyFile(to, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o700)
}

// C34: a child that says much on stderr is never stopped by it.
func TestC34StderrIsAlwaysDrained(t *testing.T) {
	t.Parallel()
	server, _ := scripted(t, "-stderr=1048576")
	really(t, setup{options: holdfast.Options{Server: server}}, func(t *testing.T, b *bench) {
		c := b.streamable(v11)
		if got := c.ask(toolCall("1", "stderr", `{"bytes":262144}`, "")); !strings.Contains(got, "written") {
			t.Errorf("answered with %s", got)
		}
		if got := c.ask(toolCall("2", "stderr", `{"bytes":262144,"newline":true}`, "")); !strings.Contains(got, "written") {
			t.Errorf("answered with %s", got)
		}
		got := c.ask(toolCall("3", "crash", `{"code":3,"stderr":"the last word"}`, ""))
		if !strings.Contains(got, "the last word") || len(got) > 64<<10 {
			t.Errorf("the death was told in %d bytes: %.300s", len(got), got)
		}
	})
}
