package session

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/calls"
	"github.com/holdfast-mcp/holdfast/internal/conversation"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

func pose(t testing.TB, call *conversation.Call, s *Session, n int) {
	t.Helper()
	msg := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":"hf-q-%d","method":"elicitation/create","params":{"message":"?"}}`, n)
	if call != nil {
		s = call.Peer.(*Session)
	}
	s.Message(call, msg)
}

func (d *desktop) answers(n int) {
	d.s.Take(nil, message(d, `{"jsonrpc":"2.0","id":"hf-q-%d","result":{"action":"accept"}}`, n))
}

// questions are the ids of those that stand on a stream, told of a task or not.
func questions(st *Stream, id string) string {
	var out []string
	for _, line := range lines(st) {
		if _, rest, ok := strings.Cut(line, `"id":"hf-q-`); ok && strings.Contains(line, "elicitation/create") {
			n, _, _ := strings.Cut(rest, `"`)
			if strings.Contains(line, `"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"`+id+`"}}`) {
				n += "*"
			}
			out = append(out, n)
		}
	}
	return strings.Join(out, " ")
}

// lose is the end of a POST's connection, what is on its stream written or not.
func lose(st *Stream, written bool) {
	if written {
		st.log.Delivered(st.log.Head())
	}
	st.Posted()
}

// placings are what may become of a task's question: it stands on st then, and
// elsewhere what is returned besides.
var placings = map[string]func(t *testing.T, d *desktop, id string, call *conversation.Call) (st *Stream, before string){
	"on the stream of tasks/result": func(t *testing.T, d *desktop, id string, call *conversation.Call) (*Stream, string) {
		st := d.post("tasks/result", named(id))
		pose(t, call, nil, 1)
		return st, ""
	},
	"on the newest of two": func(t *testing.T, d *desktop, id string, call *conversation.Call) (*Stream, string) {
		first, st := d.post("tasks/result", named(id)), d.post("tasks/result", named(id))
		pose(t, call, nil, 1)
		return st, questions(first, id)
	},
	"on the general stream": func(t *testing.T, d *desktop, id string, call *conversation.Call) (*Stream, string) {
		c := connect(t, d.s.General(), 0, true)
		t.Cleanup(func() { _ = c.leave() })
		pose(t, call, nil, 1)
		return d.s.General(), ""
	},
	"nowhere, until tasks/result": func(t *testing.T, d *desktop, id string, call *conversation.Call) (*Stream, string) {
		pose(t, call, nil, 1)
		return d.post("tasks/result", named(id)), questions(d.s.General(), id)
	},
	"nowhere, until the general stream is read": func(t *testing.T, d *desktop, id string, call *conversation.Call) (*Stream, string) {
		pose(t, call, nil, 1)
		before := questions(d.s.General(), id)
		c := connect(t, d.s.General(), 0, true)
		t.Cleanup(func() { _ = c.leave() })
		return d.s.General(), before
	},
	"anew, after a lost tasks/result": func(t *testing.T, d *desktop, id string, call *conversation.Call) (*Stream, string) {
		st := d.post("tasks/result", named(id))
		pose(t, call, nil, 1)
		lose(st, true)
		return d.post("tasks/result", named(id)), ""
	},
	"elsewhere, where it was not written": func(t *testing.T, d *desktop, id string, call *conversation.Call) (*Stream, string) {
		st, st2 := d.post("tasks/result", named(id)), d.post("tasks/result", named(id))
		pose(t, call, nil, 1)
		lose(st2, false)
		return st, ""
	},
	"once, where it was written and the client may come back": func(t *testing.T, d *desktop, id string, call *conversation.Call) (*Stream, string) {
		st, st2 := d.post("tasks/result", named(id)), d.post("tasks/result", named(id))
		pose(t, call, nil, 1)
		lose(st2, true)
		return st2, questions(st, id)
	},
}

// TestTaskAsks: a question goes to one stream that is read, and to another one
// only where it would be lost.
func TestTaskAsks(t *testing.T) {
	for name, place := range placings {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := at(t, offered(), false)
				id, call := d.job(`{}`)
				st, before := place(t, d, id, call)
				if got := questions(st, id); got != "1*" || before != "" {
					t.Errorf("there %q, elsewhere %q", got, before)
				}
				has(t, d.get(id), `"status":"input_required"`)
				d.answers(1)
				has(t, d.get(id), `"status":"working"`, "!statusMessage")
				if d.conv.heard[len(d.conv.heard)-1] != `reply "hf-q-1"` {
					t.Errorf("the server heard %s", d.conv.heard)
				}
				if again := d.post("tasks/result", named(id)); questions(again, id) != "" {
					t.Error("asked again after the answer")
				}
				reply(call, `{}`)
			})
		})
	}
}

func TestServerWithdrawsItsQuestion(t *testing.T) {
	for name, seen := range map[string]bool{"seen": true, "unseen": false} {
		t.Run(name, func(t *testing.T) {
			d := at(t, offered(), false)
			id, call := d.job(`{}`)
			st := &d.s.general
			if seen {
				st = d.post("tasks/result", named(id))
			}
			pose(t, call, nil, 1)
			d.s.Message(call, []byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"hf-q-1"}}`))
			has(t, d.get(id), `"status":"working"`)
			if told := strings.Contains(strings.Join(lines(st), ""), "notifications/cancelled"); told != seen {
				t.Errorf("told: %v", told)
			}
		})
	}
}

// TestQuestionOfNobody: one that cannot be told to be a task's is not lost, and
// not said to be.
func TestQuestionOfNobody(t *testing.T) {
	d := at(t, offered(), false)
	pose(t, nil, d.s, 1) // while no task runs, it goes where it always went
	if got := questions(d.s.General(), ""); got != "1" {
		t.Errorf("without a task: %q", got)
	}
	one, _ := d.job(`{}`)
	two, call := d.job(`{}`)
	three, over := d.job(`{}`)
	reply(over, `{}`)
	pose(t, nil, d.s, 2)
	has(t, d.get(one)+d.get(two), "!working")
	has(t, d.get(three), "completed")
	st := d.post("tasks/result", named(two))
	if got := questions(st, two) + " " + questions(d.s.General(), ""); got != "2 1" {
		t.Errorf("on the two streams: %q", got)
	}
	pose(t, nil, d.s, 3) // there is a stream for it now
	if got := questions(st, two); got != "2 3" {
		t.Errorf("on the stream: %q", got)
	}
	d.answers(2)
	has(t, d.get(one)+d.get(two), "!working")
	d.answers(3)
	has(t, d.get(one)+d.get(two), "!input_required")
	reply(call, `{}`)
	pose(t, nil, d.s, 4)
	d.s.Message(nil, []byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"hf-q-4"}}`))
	has(t, d.get(one), "working")
}

// TestTaskTells: progress under the client's token, log messages and statuses.
func TestTaskTells(t *testing.T) {
	const related = `"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"`
	d := at(t, offered(), false)
	d.ask("tools/call", `{"name":"job","task":{},"_meta":{"progressToken":7}}`)
	id, call := d.s.desk.tasks[0].id, d.conv.last(t)
	speak := func(n int) {
		call.Peer.Message(call, fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"total":9,"message":"half"}}`, call.Token, n))
		call.Peer.Message(call, []byte(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`))
	}
	speak(1)
	if n := len(lines(d.s.General())); n != 0 {
		t.Errorf("%d messages wait for nobody", n)
	}
	has(t, d.get(id), `"statusMessage":"1 of 9: half"`)
	st := d.post("tasks/result", named(id))
	speak(2)
	got := strings.Join(lines(st), "\n")
	has(t, got, `"progressToken":7,"progress":2`, `"level":"info"`, related+id)
	if n := strings.Count(got, related); n != 2 {
		t.Errorf("%d of the messages name the task: %s", n, got)
	}
	pose(t, call, nil, 1)
	d.answers(1)
	reply(call, `{}`)
	var statuses []string
	for _, line := range lines(st) {
		if m := message(t, "%s", line); m.Is("notifications/tasks/status") {
			has(t, line, id, `"ttl":3600000`, "!related-task")
			statuses = append(statuses, jsonrpc.Unquote(jsonrpc.Get(m.Raw(jsonrpc.Params), "status")))
		}
	}
	if got := strings.Join(statuses, " "); got != "input_required working completed" {
		t.Errorf("statuses: %s", got)
	}
	quiet, call := d.job(`{}`)
	wait := d.post("tasks/result", named(quiet))
	speak(3)
	has(t, strings.Join(lines(wait), ""), "!notifications/progress", "notifications/message")
	has(t, d.get(quiet), `"statusMessage":"3 of 9: half"`)
}

// TestTaskOnOneStream: over HTTP+SSE and stdio all goes there, whether it is read
// just now or not.
func TestTaskOnOneStream(t *testing.T) {
	d := at(t, offered(), true)
	d.post("tools/call", `{"name":"job","task":{}}`)
	id, call := d.s.desk.tasks[0].id, d.conv.last(t)
	pose(t, call, nil, 1)
	d.post("tasks/result", named(id))
	d.answers(1)
	reply(call, `{}`)
	var got []string
	for _, line := range lines(d.s.General()) {
		m := message(t, "%s", line)
		got = append(got, string(m.Raw(jsonrpc.ID))+string(m.Text(jsonrpc.Method)))
	}
	want := `1 2 notifications/tasks/status "hf-q-1"elicitation/create notifications/tasks/status notifications/tasks/status 3`
	if strings.Join(got, " ") != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// TestLostResultsAreFreed: who asks again and again for a result, and never reads
// it, makes the session hold it a few times.
func TestLostResultsAreFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := at(t, offered(), false)
		id, call := d.job(`{"ttl":60000}`)
		begun := d.s.InFlight()
		for range 50 {
			st := d.post("tasks/result", named(id))
			st.Name()
			lose(st, false)
		}
		if n := d.s.InFlight() - begun; n != maxLost+1 {
			t.Errorf("%d requests wait", n)
		}
		reply(call, `{"content":["`+strings.Repeat("x", 1<<20)+`"]}`)
		for range 50 {
			st := d.post("tasks/result", named(id))
			st.Name()
			lose(st, false)
		}
		held := func() (bytes, streams int) {
			d.s.mu.Lock()
			defer d.s.mu.Unlock()
			for _, st := range d.s.streams {
				bytes += st.log.Size()
			}
			return bytes, len(d.s.streams)
		}
		if bytes, streams := held(); bytes > (maxLost+2)<<20 || streams > maxLost+2 {
			t.Errorf("%d bytes are held by %d streams", bytes, streams)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if bytes, streams := held(); bytes > 0 || streams > 0 {
			t.Errorf("%d bytes are held by %d streams after the task's time", bytes, streams)
		}
	})
}

func TestTaskList(t *testing.T) {
	d := at(t, offered(), false)
	var ids []string
	for range 2*tasksAPage + 1 {
		id, _ := d.job(`{}`)
		ids = append(ids, id)
	}
	d.ask("tasks/cancel", named(ids[0]))
	var got []string
	params := `{"cursor":null}`
	for page := 0; params != ""; page++ {
		m := message(t, "%s", d.ask("tasks/list", params))
		each, err := jsonrpc.Split(jsonrpc.Get(m.Raw(jsonrpc.Result), "tasks"))
		if err != nil || len(each) > tasksAPage || page > 2 {
			t.Fatalf("page %d has %d tasks: %v", page, len(each), err)
		}
		for _, task := range each {
			got = append(got, jsonrpc.Unquote(jsonrpc.Get(task, "taskId")))
		}
		params = ""
		if next := jsonrpc.Get(m.Raw(jsonrpc.Result), "nextCursor"); next != nil {
			params = `{"cursor":` + string(next) + `}`
		}
	}
	if strings.Join(got, " ") != strings.Join(ids, " ") {
		t.Errorf("listed %d of %d", len(got), len(ids))
	}
}

// TestTasksOfOneSessionAreBounded: past the limit a call is refused, until a
// result is fetched.
func TestTasksOfOneSessionAreBounded(t *testing.T) {
	r := offered()
	d := at(t, r, false)
	refused := ""
	for range 10_000 {
		if got := d.ask("tools/call", `{"name":"job","task":{}}`); strings.Contains(got, `"error":`) {
			refused = got
		}
	}
	has(t, refused, `"code":-32000`, `"outcome":"not_executed"`, "too many tasks", "1024")
	if n := len(d.conv.calls) - 1; n != maxOwnTasks {
		t.Errorf("%d were executed", n)
	}
	first := d.s.desk.tasks[0].id
	reply(d.conv.calls[1], `{}`)
	has(t, d.ask("tools/call", `{"name":"job","task":{}}`), "too many tasks") // its result may yet be wanted
	d.ask("tasks/result", named(first))
	last, _ := d.job(`{}`)
	has(t, d.get(first), `"code":-32602`)
	has(t, d.get(last), "working")
	has(t, at(t, r, false).ask("tools/call", `{"name":"job","task":{}}`), "working")
}

// TestResultsAreBounded: of all results of a server the oldest go for want of
// room, whosever they are.
func TestResultsAreBounded(t *testing.T) {
	r := offered()
	d, other := at(t, r, false), at(t, r, false)
	oldest, call := d.job(`{}`)
	reply(call, `{}`)
	large, _ := other.job(`{}`)
	if victims := r.opts.Tasks.shelf.Finished(large, calls.MaxTaskBytes-len(d.s.desk.tasks[0].answer)); len(victims) != 0 {
		t.Fatalf("%d were given up too early", len(victims))
	}
	newest, call := other.job(`{}`)
	reply(call, `{}`)
	has(t, d.get(oldest), `"code":-32602`)
	has(t, other.get(newest), "completed")
	has(t, other.get(large), "working")
}

// TestTasksUnderAttack: everything at once, for the race detector; nothing may
// hang, and nothing stay.
func TestTasksUnderAttack(t *testing.T) {
	d := at(t, offered(), false)
	var work sync.WaitGroup
	for n := range 200 {
		st := d.s.Post(1, true)
		d.s.Take(st, message(t, `{"jsonrpc":"2.0","id":"make %d","method":"tools/call","params":{"name":"job","task":{}}}`, n))
		d.conv.mu.Lock()
		call := d.conv.calls[len(d.conv.calls)-1]
		d.conv.mu.Unlock()
		d.s.mu.Lock()
		id := d.s.desk.tasks[len(d.s.desk.tasks)-1].id
		d.s.mu.Unlock()
		for k, method := range []string{"tasks/get", "tasks/result", "tasks/cancel", "tasks/list", "tasks/result"} {
			work.Go(func() {
				st := d.s.Post(1, true)
				d.s.Take(st, message(t, `{"jsonrpc":"2.0","id":"%d %d","method":%q,"params":{"taskId":%q}}`, n, k, method, id))
				st.Posted()
			})
		}
		work.Go(func() { pose(t, call, nil, n); pose(t, nil, d.s, 1000+n) })
		work.Go(func() { d.answers(n) })
		work.Go(func() { reply(call, `{}`) })
		work.Go(func() {
			d.s.Take(nil, message(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"%d 1"}}`, n))
		})
		if n == 150 {
			work.Go(func() { d.s.End(ErrDeleted) })
			break
		}
	}
	work.Wait()
	if n := d.s.InFlight(); n != 0 || len(d.s.desk.tasks) != 0 {
		t.Errorf("%d calls in flight, %d tasks", n, len(d.s.desk.tasks))
	}
}
