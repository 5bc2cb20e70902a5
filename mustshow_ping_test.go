package holdfast_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// TestMustShow4Pings: a tool blocks its server for two minutes, and the client
// pings every 5 s. Each ping is answered within 100 ms, nothing is restarted,
// nobody is given up, and the tool has run once.
func TestMustShow4Pings(t *testing.T) {
	block := map[string]func(*fake, *jsonrpc.Message){"tools/call": func(k *fake, m *jsonrpc.Message) {
		k.farm.mu.Lock()
		if k.farm.ran == nil {
			k.farm.ran = map[string]int{}
		}
		k.farm.ran[string(m.Text(jsonrpc.Name))]++
		k.farm.mu.Unlock()
		select { // on the goroutine that reads
		case <-time.After(2 * time.Minute):
		case <-k.ctx.Done():
		}
		k.reply(string(m.Raw(jsonrpc.ID)), `{"structuredContent":"done"}`)
	}}
	for name, open := range bindings {
		for _, isolation := range []holdfast.Isolation{holdfast.PerSession, holdfast.Shared} {
			t.Run(name+" "+string(isolation), func(t *testing.T) {
				f := &farm{methods: block}
				o := holdfast.Options{Server: holdfast.Server{Isolation: isolation}}
				virtually(t, setup{farm: f, options: o}, func(t *testing.T, b *bench) { pingsWhileBlocked(t, b, open(b, v06)) })
			})
		}
	}
}

func pingsWhileBlocked(t *testing.T, b *bench, c *client) {
	t.Helper()
	servers := len(b.farm.all())
	begin := time.Now()
	c.send(toolCall("1", "block", `{}`, ""))
	for i := range 23 {
		<-time.After(5 * time.Second)
		id := fmt.Sprintf(`"ping %d"`, i)
		c.send(body(id, "ping", ""))
		sent := time.Now()
		if got, want := c.answer(id), `{"jsonrpc":"2.0","id":`+id+`,"result":{}}`; got != want {
			t.Errorf("answered with %s", got)
		}
		if d := time.Since(sent); d > 100*time.Millisecond {
			t.Errorf("ping %d was answered after %v", i, d)
		}
	}
	wantAnswer(t, c.answer("1"), done, "!adopted")
	if d := time.Since(begin); d > 2*time.Minute+time.Second {
		t.Errorf("the call was answered after %v", d)
	}
	<-time.After(10 * time.Minute)
	if got := len(b.farm.all()); got != servers || b.farm.alive() != servers {
		t.Errorf("%d servers were started, %d live; there were %d", got, b.farm.alive(), servers)
	}
	wantExecuted(t, b.farm, "block", 1)
	wantCancels(t, b.farm)
}
