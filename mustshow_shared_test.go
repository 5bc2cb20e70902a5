package holdfast_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/internal/testkit"
)

const (
	sharedCalls = 5000 // of each of the two clients
	inParallel  = 8
)

// ledger is what one client has sent and got, by id.
type ledger struct {
	t    *testing.T
	name string

	mu       sync.Mutex // guards the fields below
	progress map[string]int
	answered map[string]int
}

func newLedger(t *testing.T, name string) *ledger {
	return &ledger{t: t, name: name, progress: map[string]int{}, answered: map[string]int{}}
}

// call is number n of the client: its ids and tokens are those of the other
// client, too.
func (l *ledger) call(n int) (id string, request []byte) {
	id = fmt.Sprint(n % 1000) // used again
	if n%2 == 1 {
		id = fmt.Sprintf("%q", id)
	}
	return id, testkit.CallToolWithToken(id, "repeat", fmt.Sprintf(`{"text":"%s %s"}`, l.name, strings.Trim(id, `"`)), id)
}

// take holds one message against what this client has asked for.
func (l *ledger) take(m testkit.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case m.Method == "notifications/progress":
		var p struct {
			ProgressToken json.RawMessage `json:"progressToken"`
			Message       string          `json:"message"`
		}
		if err := json.Unmarshal(m.Params, &p); err != nil || p.Message != l.name+" "+strings.Trim(string(p.ProgressToken), `"`) {
			l.t.Errorf("%s got the progress %s", l.name, m.Bytes)
		}
		l.progress[string(p.ProgressToken)]++
	case m.Method == "" && m.Text() == l.name+" "+strings.Trim(string(m.ID), `"`):
		l.answered[string(m.ID)]++
	default:
		l.t.Errorf("%s got %s", l.name, m.Bytes)
	}
}

// settle demands one answer and two progress notifications for each call.
func (l *ledger) settle() {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	want := map[string]int{}
	for n := range sharedCalls {
		id, _ := l.call(n)
		want[id]++
	}
	for id, n := range want {
		if l.answered[id] != n || l.progress[id] != 2*n {
			l.t.Errorf("%s: id %s: %d calls, %d answers, %d progress notifications", l.name, id, n, l.answered[id], l.progress[id])
		}
	}
	if len(l.answered) != len(want) || len(l.progress) != len(want) {
		l.t.Errorf("%s: %d ids answered, %d tokens, want %d", l.name, len(l.answered), len(l.progress), len(want))
	}
}

// overMCP makes the calls over Streamable HTTP. A call's messages come on its
// own stream.
func (l *ledger) overMCP(ctx context.Context, c *testkit.Client) {
	numbers := make(chan int)
	var workers sync.WaitGroup
	for range inParallel {
		workers.Go(func() { // ends with numbers
			for n := range numbers {
				id, request := l.call(n)
				resp, err := c.Post(ctx, request)
				if err != nil || resp.Stream == nil {
					l.t.Errorf("%s: call %d: %v", l.name, n, err)
					continue
				}
				answer, before, err := resp.Stream.Await(ctx, id)
				resp.Stream.Close()
				if err != nil || len(before) != 2 {
					l.t.Errorf("%s: call %d: %d messages before the answer, %v", l.name, n, len(before), err)
				}
				for _, m := range append(before, answer) {
					l.take(m)
				}
			}
		})
	}
	for n := range sharedCalls {
		numbers <- n
	}
	close(numbers)
	workers.Wait()
}

// overSSE makes the calls over HTTP+SSE. All messages come on one stream.
func (l *ledger) overSSE(ctx context.Context, s *testkit.SSE) {
	free := make(chan struct{}, inParallel)
	var reader sync.WaitGroup
	reader.Go(func() { // ends with the last answer, or ctx
		for range 3 * sharedCalls {
			m, _, err := s.Message(ctx)
			if err != nil {
				l.t.Errorf("%s: %v", l.name, err)
				return
			}
			if l.take(m); m.Method == "" {
				<-free
			}
		}
	})
	for n := range sharedCalls {
		select {
		case free <- struct{}{}:
		case <-ctx.Done():
			l.t.Errorf("%s: call %d: %v", l.name, n, ctx.Err())
			return
		}
		_, request := l.call(n)
		if err := s.Deliver(ctx, request); err != nil {
			l.t.Errorf("%s: call %d: %v", l.name, n, err)
			return
		}
	}
	reader.Wait()
}

// TestMustShow6Shared: two clients with the same ids and tokens on one shared
// server, 10,000 calls with progress: nothing goes astray. C12, C45.
func TestMustShow6Shared(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*soon)
	defer cancel()
	server := holdfast.InProcess(parrot)
	server.Isolation = holdfast.Shared
	base := gate(t, holdfast.Options{Server: server})
	one, two := newLedger(t, "one"), newLedger(t, "two")
	client := sessionOf(t, base+"/mcp", "2025-06-18", `{}`, nil)
	stream := streamOf(t, base+"/sse", "2024-11-05", nil)
	var both sync.WaitGroup
	both.Go(func() { one.overMCP(ctx, client) })
	both.Go(func() { two.overSSE(ctx, stream) })
	both.Wait()
	one.settle()
	two.settle()
}

// TestMustShow6SharedQuestions: a question on a shared server reaches the client
// whose call it can only belong to, again and again; with two calls it reaches
// nobody.
func TestMustShow6SharedQuestions(t *testing.T) {
	t.Parallel() // it mostly waits
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	server := scriptedChild()
	server.Isolation = holdfast.Shared
	base := gate(t, holdfast.Options{Server: server})
	clients := []*testkit.Client{
		sessionOf(t, base+"/mcp", "2025-06-18", `{"elicitation":{}}`, nil),
		sessionOf(t, base+"/mcp", "2025-11-25", `{"elicitation":{}}`, nil),
	}
	for n := range 20 {
		name := fmt.Sprintf("client %d", n%2)
		if got := elicit(ctx, t, clients[n%2], name); got != name {
			t.Errorf("%s was answered %s", name, got)
		}
	}
	sleeping := make(chan error, 1)
	sleeper, err := clients[1].Post(ctx, testkit.CallTool(`"s"`, "sleep", `{"ms":1000}`))
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _, err := sleeper.Stream.Await(ctx, `"s"`); sleeping <- err }() // ends with the answer
	m, err := clients[0].Call(ctx, `"q"`, testkit.CallTool(`"q"`, "ask", `{"message":"whom?"}`))
	if err != nil || !strings.Contains(m.Text(), "--isolation session") {
		t.Errorf("with two calls: %s, %v", m.Bytes, err)
	}
	if err := <-sleeping; err != nil {
		t.Error(err)
	}
}

// elicit calls a tool that asks, answers what it is asked with name, and returns
// the name that came to the tool.
func elicit(ctx context.Context, t *testing.T, c *testkit.Client, name string) string {
	t.Helper()
	resp, err := c.Post(ctx, testkit.CallTool(`"e"`, "ask", fmt.Sprintf(`{"message":%q}`, name)))
	if err != nil || resp.Stream == nil {
		t.Errorf("%s: %v, %+v", name, err, resp)
		return ""
	}
	defer resp.Stream.Close()
	asked, _, err := resp.Stream.Message(ctx)
	if err != nil || asked.Method != "elicitation/create" || !strings.Contains(string(asked.Params), fmt.Sprintf("%q", name)) {
		t.Errorf("%s was asked %s, %v", name, asked.Bytes, err)
		return ""
	}
	if err := c.Deliver(ctx, testkit.Reply(string(asked.ID), fmt.Sprintf(`{"action":"accept","content":{"answer":%q}}`, name))); err != nil {
		t.Errorf("%s: %v", name, err)
		return ""
	}
	answer, _, err := resp.Stream.Await(ctx, `"e"`)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return ""
	}
	var got struct {
		Content struct {
			Answer string `json:"answer"`
		} `json:"content"`
	}
	if json.Unmarshal([]byte(answer.Text()), &got) != nil {
		return answer.Text()
	}
	return got.Content.Answer
}

// TestMustShow6Session: in session isolation two elicitations at once reach the
// right clients, and each client's own name reaches its server.
func TestMustShow6Session(t *testing.T) {
	t.Parallel() // it mostly waits
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	base := gate(t, holdfast.Options{Server: scriptedChild()})
	var clients sync.WaitGroup
	pids := make([]int, 4)
	for n := range pids {
		clients.Go(func() { // ends with its calls
			name := fmt.Sprintf("client %d", n)
			c := newcomer(t, base+"/mcp", nil)
			if _, err := c.InitializeAs(ctx, "2025-06-18", `{"elicitation":{"form":{}}}`, name); err != nil {
				t.Error(err)
				return
			}
			for range 10 {
				if got := elicit(ctx, t, c, name); got != name {
					t.Errorf("%s was answered %s", name, got)
				}
			}
			m, err := c.Call(ctx, "1", testkit.CallTool("1", "whoami", `{}`))
			var who testkit.Identity
			if err == nil {
				err = json.Unmarshal([]byte(m.Text()), &who)
			}
			if err != nil || string(who.ClientInfo) != fmt.Sprintf(`{"name":%q,"version":"1.0.0"}`, name) || string(who.Capabilities) != `{"elicitation":{"form":{}}}` {
				t.Errorf("the server of %s was told %s, %s, %v", name, who.ClientInfo, who.Capabilities, err)
			}
			pids[n] = who.Pid
		})
	}
	clients.Wait()
	for n, pid := range pids {
		for _, other := range pids[:n] {
			if pid == other {
				t.Errorf("two clients have one server: %v", pids)
			}
		}
	}
}
