package session

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/calls"
	"github.com/holdfast-mcp/holdfast/internal/conversation"
	"github.com/holdfast-mcp/holdfast/internal/ledger"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// desktop is a client of revision 2025-11-25 whose server knows nothing of tasks.
type desktop struct {
	testing.TB
	s    *Session
	conv *server
	n    int
}

// offer offers tools whose names begin with "job", for an hour.
func offer() *TaskOptions {
	return &TaskOptions{
		Offered: func(tool string) bool { return strings.HasPrefix(tool, "job") },
		Longest: func(string) time.Duration { return time.Hour },
	}
}

func offered() *Registry { return registry(RegistryOptions{Tasks: offer()}) }

func at(t testing.TB, r *Registry, single bool) *desktop {
	t.Helper()
	d := &desktop{TB: t}
	d.s, d.conv = open(t, r, single)
	got := d.exchange("initialize", `{"protocolVersion":"2025-11-25"}`, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}`)
	if single { // there is one stream for all
		d.s.general.log.Delivered(d.s.general.log.Head())
	}
	if !strings.Contains(got, `"tasks":`) {
		t.Fatalf("no tasks: %s", got)
	}
	return d
}

// post makes the session take a request, and returns its stream.
func (d *desktop) post(method, params string) *Stream {
	d.Helper()
	d.n++
	st := d.s.Post(1, true)
	d.s.Take(st, message(d, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, d.n, method, params))
	return st
}

// said is the answer on a stream, "" if there is none.
func said(st *Stream) string {
	for _, line := range lines(st) {
		if strings.Contains(line, `"result":`) || strings.Contains(line, `"error":`) {
			return line
		}
	}
	return ""
}

// ask is post for what is answered at once.
func (d *desktop) ask(method, params string) string {
	d.Helper()
	st := d.post(method, params)
	answer := said(st)
	if answer == "" {
		d.Fatalf("%s %s is not answered", method, params)
	}
	st.log.Delivered(st.log.Head())
	st.delivered(st.log.Head())
	st.Posted()
	return answer
}

// exchange is a request that the server answers.
func (d *desktop) exchange(method, params, result string) string {
	d.Helper()
	st := d.post(method, params)
	call := d.conv.last(d)
	call.Peer.Answer(call, jsonrpc.AppendResult(nil, call.ID, []byte(result)))
	return said(st)
}

// job begins a task. It returns its id, and its call at the server.
func (d *desktop) job(task string) (string, *conversation.Call) {
	d.Helper()
	got := d.ask("tools/call", `{"name":"job","task":`+task+`}`)
	m := message(d, "%s", got)
	id := jsonrpc.Unquote(jsonrpc.Get(jsonrpc.Get(m.Raw(jsonrpc.Result), "task"), "taskId"))
	if id == "" {
		d.Fatalf("no task: %s", got)
	}
	return id, d.conv.last(d)
}

func named(id string) string { return fmt.Sprintf(`{"taskId":%q}`, id) }

func (d *desktop) get(id string) string { return d.ask("tasks/get", named(id)) }

// has fails unless all words are in the text, and none that begins with "!".
func has(t testing.TB, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if not, negated := strings.CutPrefix(w, "!"); negated == strings.Contains(text, not) {
			t.Errorf("want %s in %s", w, text)
		}
	}
}

func reply(call *conversation.Call, result string) {
	call.Peer.Answer(call, jsonrpc.AppendResult(nil, call.ID, []byte(result)))
}

func TestTasksAreOffered(t *testing.T) {
	const plain = `{"protocolVersion":"2025-11-25", "capabilities": {"tools": {"listChanged":true}},"serverInfo":{"name":"x"}}`
	const with = `{"protocolVersion":"2025-11-25", "capabilities": {"tools": {"listChanged":true},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}},"serverInfo":{"name":"x"}}`
	const tools = `{ "tools" : [ {"name":"job1", "n":1.0}, {"name":"other"},{"name":"j\u006fb2","execution":{"x":1, "taskSupport":"forbidden"}} ], "nextCursor":"c" }`
	const marked = `{ "tools" : [ {"name":"job1", "n":1.0,"execution":{"taskSupport":"optional"}}, {"name":"other"},{"name":"j\u006fb2","execution":{"x":1, "taskSupport":"optional"}} ], "nextCursor":"c" }`
	edit := strings.NewReplacer
	for name, tt := range map[string]struct {
		o           *TaskOptions
		hello, want string
		wantTools   string
	}{
		"offered":             {o: offer(), hello: plain, want: with, wantTools: marked},
		"nothing configured":  {hello: plain, want: plain, wantTools: tools},
		"an earlier revision": {o: offer(), hello: edit("2025-11-25", "2025-06-18").Replace(plain), want: edit("2025-11-25", "2025-06-18").Replace(plain), wantTools: tools},
		"a server that has tasks": {o: offer(), hello: edit(`{"tools"`, `{"tasks":{},"tools"`).Replace(plain),
			want: edit(`{"tools"`, `{"tasks":{},"tools"`).Replace(plain), wantTools: tools},
		"a server without tools": {o: offer(), hello: `{"protocolVersion":"2025-11-25","capabilities":{}}`,
			want: `{"protocolVersion":"2025-11-25","capabilities":{}}`, wantTools: tools},
	} {
		t.Run(name, func(t *testing.T) {
			d := &desktop{TB: t}
			d.s, d.conv = open(t, registry(RegistryOptions{Tasks: tt.o}), false)
			if got := d.exchange("initialize", `{}`, tt.hello); got != `{"jsonrpc":"2.0","id":1,"result":`+tt.want+`}` {
				t.Errorf("initialize: %s", got)
			}
			if got := d.exchange("tools/list", `{}`, tools); got != `{"jsonrpc":"2.0","id":2,"result":`+tt.wantTools+`}` {
				t.Errorf("tools/list: %s", got)
			}
			if tt.wantTools == marked {
				return
			}
			d.post("tools/call", `{"name":"job1","task":{}}`) // all of it goes to the server
			d.post("tasks/get", `{"taskId":"theirs"}`)
			has(t, strings.Join(d.conv.sent[2:], " "), `"task":{}`, `"taskId":"theirs"`)
		})
	}
}

func TestTaskOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := at(t, offered(), false)
		got := d.ask("tools/call", `{ "name":"job", "task": {"ttl":60000.5}, "arguments":{"n":1.0},"_meta":{"progressToken":"p"}}`)
		has(t, got, `{"jsonrpc":"2.0","id":2,"result":{"task":{"taskId":"hf-task-`, `"status":"working","createdAt":"2000-01-01T00:00:00.000Z","lastUpdatedAt":"2000-01-01T00:00:00.000Z","ttl":60000,"pollInterval":1000}}}`)
		has(t, d.conv.sent[1], `"params":{ "name":"job", "arguments":{"n":1.0},"_meta":{"progressToken":"p"}}}`, `"id":"hf-run-`)
		id := jsonrpc.Unquote(jsonrpc.Get(jsonrpc.Get(message(t, "%s", got).Raw(jsonrpc.Result), "task"), "taskId"))
		if call := d.conv.last(t); string(call.Token) != `"p"` || call.What() != "tools/call job" {
			t.Errorf("called with the token %s as %s", call.Token, call.What())
		}
		time.Sleep(2 * time.Second)
		has(t, d.get(id), `"result":{"taskId":"`+id+`","status":"working",`, `"ttl":60000`, "!related-task")
		first := d.post("tasks/result", named(id))
		if said(first) != "" {
			t.Errorf("answered before the end: %s", said(first))
		}
		reply(d.conv.last(t), `{"content":[],"_meta":{"x":1.0},"isError":false}`)
		const tail = `,"result":{"content":[],"_meta":{"x":1.0,"io.modelcontextprotocol/related-task":{"taskId":"%s"}},"isError":false}}`
		for _, tt := range []struct{ got, id string }{
			{said(first), "4"}, {d.ask("tasks/result", named(id)), "5"}, {d.ask("tasks/result", named(id)), "6"},
		} {
			if want := `{"jsonrpc":"2.0","id":` + tt.id + fmt.Sprintf(tail, id); tt.got != want {
				t.Errorf("got %s\nwant %s", tt.got, want)
			}
		}
		has(t, d.get(id), `"status":"completed"`, `"lastUpdatedAt":"2000-01-01T00:00:02.000Z"`)
		if n := len(d.conv.sent); n != 2 {
			t.Errorf("the server was told %d requests: %s", n, d.conv.sent)
		}
		time.Sleep(58 * time.Second)
		synctest.Wait()
		has(t, d.get(id), `"code":-32602`, "ttl")
		has(t, d.ask("tasks/list", `{}`), `"result":{"tasks":[]}`)
	})
}

// TestTaskFails: what the call would have been answered with is what the result
// is.
func TestTaskFails(t *testing.T) {
	const fault = `{"code":-32099,"message":"no \"paper\"","data":{"n":1.0}}`
	for name, tt := range map[string]struct{ answer, status, result string }{
		"an error":      {`"error":` + fault, `"no \"paper\""`, `"error":` + fault},
		"a tool's":      {`"result":{"content":[{"type":"image"},{"type":"text","text":"jam"}],"isError":true}`, `"jam"`, `"isError":true`},
		"a mute tool's": {`"result":{"isError":true}`, `"the tool reports an error"`, `"isError":true,"_meta":{"io.model`},
	} {
		t.Run(name, func(t *testing.T) {
			d := at(t, offered(), false)
			id, call := d.job(`{}`)
			call.Peer.Answer(call, []byte(`{"jsonrpc":"2.0","id":`+string(call.ID)+`,`+tt.answer+`}`))
			has(t, d.get(id), `"status":"failed","statusMessage":`+tt.status)
			has(t, d.ask("tasks/result", named(id)), tt.result, fmt.Sprintf(`"id":%d,`, d.n))
		})
	}
}

func TestTaskRequestsAreRefused(t *testing.T) {
	r := offered()
	d, other := at(t, r, false), at(t, r, false)
	theirs, _ := other.job(`{}`)
	over, call := d.job(`{}`)
	reply(call, `{}`)
	asked := len(d.conv.sent)
	earlier := calls.TaskPrefix + "ABCDEFGHIJ-ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	for _, tt := range []struct{ method, params, want string }{
		{"tools/call", `{"name":"other","task":{}}`, `"code":-32601`},
		{"tools/call", `{"task":{}}`, `"code":-32601`},
		{"tools/call", `{"name":"job","task":true}`, `"code":-32602`},
		{"tools/call", `{"name":"job","task":[]}`, `"code":-32602`},
		{"tools/call", `{"name":"job","task":{"ttl":-1}}`, `"code":-32602`},
		{"tools/call", `{"name":"job","task":{"ttl":"60"}}`, `"code":-32602`},
		{"tools/call", `{"name":"job","task":{"ttl":{}}}`, `"code":-32602`},
		{"tools/call", `{"name":"job","task":{"ttl":1e999}}`, `"code":-32602`},
		{"tasks/cancel", named(over), `"code":-32602`},
		{"tasks/list", `{"cursor":"x"}`, `"code":-32602`},
		{"tasks/list", `{"cursor":"-1"}`, `"code":-32602`},
		{"tasks/list", `{"cursor":"2"}`, `"code":-32602`},
		{"tasks/list", `{"cursor":1}`, `"code":-32602`},
	} {
		has(t, d.ask(tt.method, tt.params), tt.want)
	}
	for _, method := range []string{"tasks/get", "tasks/result", "tasks/cancel"} {
		for params, want := range map[string]string{
			`{}`: `"code":-32602`, `[]`: `"code":-32602`, `{"taskId":7}`: `"code":-32602`, `{"taskId":""}`: `"code":-32602`,
			named("x"): "no such task", named(theirs): "another session's", named(earlier): `"outcome":"unknown"`,
		} {
			has(t, d.ask(method, params), want, `"code":-32602`)
		}
	}
	has(t, d.ask("tasks/list", `{}`), over, "!"+theirs)
	if len(d.conv.sent) != asked {
		t.Errorf("the server was told %s", d.conv.sent[asked:])
	}
	has(t, other.get(theirs), `"status":"working"`)
	d.exchange("tasks/update", `{}`, `{}`) // is none of these methods
	d.exchange("tools/call", `{"name":"job","task":null}`, `{}`)
}

func TestTaskTTL(t *testing.T) {
	for wish, want := range map[string]int{
		`{}`: 3600000, `{"ttl":null}`: 3600000, `{"ttl":3600001}`: 3600000, `{"ttl":1e300}`: 3600000, `{"ttl":99999999999999999999}`: 3600000,
		`{"ttl":0}`: 1000, `{"ttl":999}`: 1000, `{"ttl":1e4}`: 10000,
	} {
		d := at(t, offered(), false)
		id, _ := d.job(wish)
		has(t, d.get(id), fmt.Sprintf(`"ttl":%d,`, want))
		d.s.End(ErrDeleted)
	}
}

func TestTaskIsCancelled(t *testing.T) {
	d := at(t, offered(), false)
	id, call := d.job(`{}`)
	waiter := d.post("tasks/result", named(id))
	has(t, d.ask("tasks/cancel", named(id)), `"result":{"taskId":"`+id+`","status":"cancelled","statusMessage":`)
	if len(d.conv.gaveUp) != 1 || d.conv.gaveUp[0] != string(call.ID) {
		t.Errorf("cancelled at the server: %s", d.conv.gaveUp)
	}
	for _, got := range []string{said(waiter), d.ask("tasks/result", named(id))} {
		has(t, got, `"code":-32800`, `"outcome":"cancelled"`)
	}
	reply(call, `{"late":true}`)
	has(t, d.get(id), `"status":"cancelled"`)
	has(t, d.ask("tasks/cancel", named(id)), `"code":-32602`, "cancelled")
	if n := d.s.InFlight(); n != 0 {
		t.Errorf("%d calls in flight", n)
	}
}

// TestWaitIsGivenUp: who no longer waits for the result has not cancelled the
// task, and cannot do so by its request's id.
func TestWaitIsGivenUp(t *testing.T) {
	d := at(t, offered(), false)
	id, call := d.job(`{}`)
	waiter := d.post("tasks/result", named(id))
	for _, n := range []int{2, d.n} { // the call that it was made by, and the wait
		d.s.Take(nil, message(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, n))
	}
	has(t, said(waiter), `"code":-32800`)
	has(t, d.get(id), `"status":"working"`)
	if len(d.conv.gaveUp) != 0 {
		t.Errorf("cancelled at the server: %s", d.conv.gaveUp)
	}
	reply(call, `{}`)
	has(t, d.ask("tasks/result", named(id)), `"result":{`)
}

func TestTaskExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := at(t, offered(), false)
		id, call := d.job(`{"ttl":5000}`)
		waiter := d.post("tasks/result", named(id))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		has(t, said(waiter), `"code":-32602`, "ttl")
		has(t, d.get(id), `"code":-32602`)
		if len(d.conv.gaveUp) != 1 || d.conv.gaveUp[0] != string(call.ID) || d.s.InFlight() != 0 {
			t.Errorf("cancelled at the server: %s", d.conv.gaveUp)
		}
		reply(call, `{}`)
	})
}

func TestTasksEndWithTheirSession(t *testing.T) {
	r := offered()
	d := at(t, r, false)
	_, call := d.job(`{}`)
	done, over := d.job(`{}`)
	reply(over, `{}`)
	waiter := d.post("tasks/result", named(d.s.desk.tasks[0].id))
	d.s.End(ErrDeleted)
	has(t, said(waiter), `"code":-32000`)
	if len(d.conv.gaveUp) != 1 || d.conv.gaveUp[0] != string(call.ID) {
		t.Errorf("cancelled at the server: %s", d.conv.gaveUp)
	}
	if _, ok := r.opts.Tasks.shelf.Find(done, d.s.ID); ok || len(d.s.desk.tasks) != 0 {
		t.Error("a task has outlived its session")
	}
	d.s.Take(d.s.Post(1, true), message(t, `{"jsonrpc":"2.0","id":99,"method":"tools/call","params":{"name":"job","task":{}}}`))
	if n := len(d.conv.calls); n != 3 {
		t.Errorf("the server was called %d times", n)
	}
}

// TestUnfetchedResultHoldsItsSession while its time lasts, and no longer.
func TestUnfetchedResultHoldsItsSession(t *testing.T) {
	for name, fetch := range map[string]bool{"fetched": true, "unfetched": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := registry(RegistryOptions{Tasks: offer(), Timeout: time.Minute})
				d := at(t, r, false)
				id, call := d.job(`{"ttl":600000}`)
				for range 6 {
					time.Sleep(time.Minute)
					r.sweep(time.Now())
				}
				reply(call, `{}`)
				if fetch {
					d.ask("tasks/result", named(id))
				}
				time.Sleep(2 * time.Minute)
				r.sweep(time.Now())
				if alive := d.s.Err() == nil; alive == fetch {
					t.Errorf("alive: %v", alive)
				}
				time.Sleep(2*time.Minute + time.Second)
				r.sweep(time.Now())
				if d.s.Err() == nil {
					t.Error("the session has outlived all its tasks")
				}
			})
		})
	}
}

func TestTaskIsNotBegunTwice(t *testing.T) {
	book := NewBook(ledger.Options{Window: time.Minute, TTL: time.Minute})
	defer book.Close()
	rules := func(string) calls.Rules { return calls.Rules{Grace: time.Minute} }
	r := registry(RegistryOptions{Tasks: offer(), Book: book, Rules: rules})
	d := at(t, r, false)
	d.s.Identify(Who{Caller: "ann"})
	const params = `{"name":"job","task":{"ttl":60000}}`
	lost := d.post("tools/call", params)
	lost.Posted() // before it was read
	other := at(t, r, false)
	other.s.Identify(Who{Caller: "ann"})
	if own, call := other.job(`{"ttl":60000}`); string(call.ID) == string(d.conv.last(t).ID) || strings.Contains(said(lost), own) {
		t.Error("another session was handed a task that it cannot ask for")
	}
	again := d.ask("tools/call", params)
	id := jsonrpc.Unquote(jsonrpc.Get(jsonrpc.Get(message(t, "%s", said(lost)).Raw(jsonrpc.Result), "task"), "taskId"))
	has(t, again, id, `"dev.holdfast/adopted":true`)
	if n := len(d.conv.sent); n != 2 {
		t.Errorf("executed %d times", n-1)
	}
	if third := d.ask("tools/call", params); strings.Contains(third, id) { // that one is meant anew
		t.Errorf("the same task a third time: %s", third)
	}
}
