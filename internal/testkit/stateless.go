package testkit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// StatelessVersion is the revision without a handshake.
const StatelessVersion = "2026-07-28"

// The keys of a stateless request's _meta that must be there.
const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaSubscription = "io.modelcontextprotocol/subscriptionId"
)

// errStopped is how a server ends that was stopped.
var errStopped = errors.New("testkit: stopped")

// Audience takes what a scripted server says. Lines are cleared once Line has
// returned.
type Audience interface {
	Line(line []byte)
	Closed(err error)
}

// Troupe starts scripted servers in this process, one for each that would be a
// child, which speak message by message rather than over pipes. It works inside
// a synctest bubble. Its fields are not to be changed once a server is started.
type Troupe struct {
	Handshake    bool   // answers initialize
	Stateless    bool   // answers server/discover, and serves the stateless revision
	Capabilities string // JSON object; default DefaultCapabilities
	// On handles requests and notifications by method, on the goroutine that
	// takes them. It comes before all that a server does by itself.
	On map[string]func(a *Actor, m *jsonrpc.Message)
	// Tools are run in goroutines of their own.
	Tools map[string]func(c *ToolCall)

	mu     sync.Mutex // guards the field below
	actors []*Actor
}

// Actor is one server of a troupe. Safe for concurrent use.
type Actor struct {
	Number int // 0 for the first of the troupe
	Memory map[string]string
	troupe *Troupe
	to     Audience
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
	once   sync.Once
	more   chan struct{}
	speak  sync.Mutex // one line at a time, in order

	mu      sync.Mutex // guards the fields below, and Memory
	lines   []string
	taken   int // of lines
	calls   map[string]context.CancelFunc
	answers map[string]chan *jsonrpc.Message
	asked   int
	listens map[string]string // filters by the id of the listen request
}

// Start starts a server that speaks to an audience.
func (t *Troupe) Start(to Audience) *Actor {
	ctx, cancel := context.WithCancelCause(context.Background())
	a := &Actor{troupe: t, to: to, ctx: ctx, cancel: cancel, more: make(chan struct{}, 1), Memory: map[string]string{},
		calls: map[string]context.CancelFunc{}, answers: map[string]chan *jsonrpc.Message{}, listens: map[string]string{}}
	t.mu.Lock()
	a.Number = len(t.actors)
	t.actors = append(t.actors, a)
	t.mu.Unlock()
	a.wg.Go(a.run) // ends with ctx
	return a
}

// Actors returns the servers started so far.
func (t *Troupe) Actors() []*Actor {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]*Actor(nil), t.actors...)
}

// Latest returns the server started last.
func (t *Troupe) Latest() *Actor {
	all := t.Actors()
	return all[len(all)-1]
}

// Told returns the lines that any server was sent and that hold all the words.
func (t *Troupe) Told(words ...string) (out []string) {
	for _, a := range t.Actors() {
		out = append(out, a.Told(words...)...)
	}
	return out
}

// Send takes one message, as a link to a server does.
func (a *Actor) Send(m *jsonrpc.Message, edits ...jsonrpc.Edit) error {
	return a.SendRaw(m.Append(nil, edits...))
}

// SendRaw takes one line.
func (a *Actor) SendRaw(line []byte) error {
	a.mu.Lock()
	a.lines = append(a.lines, string(line))
	a.mu.Unlock()
	select {
	case a.more <- struct{}{}:
	default:
	}
	return nil
}

// Stop ends the server and returns once nothing of it is left.
func (a *Actor) Stop() { a.Die(errStopped) }

// Die ends the server as if its process had.
func (a *Actor) Die(err error) {
	a.cancel(err)
	a.wg.Wait()
	a.once.Do(func() { a.to.Closed(err) })
}

// Told returns the lines that it was sent and that hold all the words.
func (a *Actor) Told(words ...string) (out []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
next:
	for _, line := range a.lines {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue next
			}
		}
		out = append(out, line)
	}
	return out
}

// Say writes one line.
func (a *Actor) Say(format string, args ...any) {
	a.speak.Lock()
	defer a.speak.Unlock()
	if a.ctx.Err() == nil {
		line := fmt.Appendf(nil, format, args...)
		a.to.Line(line)
		clear(line) // nobody may have kept it
	}
}

// Reply answers a request; both parts are JSON.
func (a *Actor) Reply(id, result string) { a.Say("%s", Reply(id, result)) }

// Refuse answers a request with an error.
func (a *Actor) Refuse(id string, code int, message string) {
	a.Say("%s", Refusal(id, code, message))
}

// run handles what comes, one after the other.
func (a *Actor) run() {
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-a.more:
		}
		for {
			a.mu.Lock()
			if a.taken == len(a.lines) {
				a.mu.Unlock()
				break
			}
			line := a.lines[a.taken]
			a.taken++
			a.mu.Unlock()
			a.take(line)
		}
	}
}

func (a *Actor) take(line string) {
	m, err := jsonrpc.Parse([]byte(line))
	if err != nil {
		return
	}
	method, id := string(m.Text(jsonrpc.Method)), string(m.Raw(jsonrpc.ID))
	handle := a.troupe.On[method]
	switch {
	case m.Kind() == jsonrpc.Response:
		a.mu.Lock()
		if to := a.answers[id]; to != nil {
			delete(a.answers, id)
			to <- m // has room for the one answer
		}
		a.mu.Unlock()
	case handle != nil:
		handle(a, m)
	case method == "notifications/cancelled":
		a.giveUp(string(m.Raw(jsonrpc.RequestID)))
	case m.Kind() == jsonrpc.Notification:
	case m.Has(jsonrpc.MetaVersion) && a.troupe.Stateless:
		a.stateless(m, method, id)
	case method == "initialize" && a.troupe.Handshake:
		a.Reply(id, `{"protocolVersion":`+string(m.Raw(jsonrpc.ProtocolVersion))+`,"capabilities":`+a.capabilities()+
			`,"serverInfo":{"name":"troupe","version":"1.0"},"instructions":"<play>"}`)
	case !a.troupe.Handshake:
		a.Refuse(id, -32602, "params._meta must hold "+metaVersion)
	default:
		a.handshake(m, method, id)
	}
}

func (a *Actor) capabilities() string {
	return cmp.Or(a.troupe.Capabilities, DefaultCapabilities)
}

// giveUp ends a call or a subscription.
func (a *Actor) giveUp(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.listens, id)
	if cancel := a.calls[id]; cancel != nil {
		cancel()
	}
}

// handshake answers as a server of the handshake era.
func (a *Actor) handshake(m *jsonrpc.Message, method, id string) {
	switch method {
	case "tools/call":
		a.call(m)
	case "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe":
		a.Reply(id, `{}`)
	default:
		if result, ok := lists[method]; ok {
			a.Reply(id, result)
			return
		}
		a.Refuse(id, -32601, "unknown method")
	}
}

// lists are what both eras have alike.
var lists = map[string]string{
	"tools/list":               `{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}`,
	"prompts/list":             `{"prompts":[]}`,
	"prompts/get":              `{"messages":[]}`,
	"resources/list":           `{"resources":[]}`,
	"resources/templates/list": `{"resourceTemplates":[]}`,
	"resources/read":           `{"contents":[]}`,
	"completion/complete":      `{"completion":{"values":[]}}`,
}

// stateless answers as a server of the stateless era.
func (a *Actor) stateless(m *jsonrpc.Message, method, id string) {
	const head = `"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"troupe","version":"1.0"}}`
	switch method {
	case "server/discover":
		a.Reply(id, `{`+head+`,"supportedVersions":["`+StatelessVersion+`"],"capabilities":`+a.capabilities()+
			`,"instructions":"<play>","ttlMs":1000,"cacheScope":"public"}`)
	case "tools/call":
		a.call(m)
	case "subscriptions/listen":
		filter := string(jsonrpc.Get(m.Raw(jsonrpc.Params), "notifications"))
		a.Say(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{%q:%s},"notifications":%s}}`,
			metaSubscription, id, cmp.Or(filter, "{}"))
		a.mu.Lock()
		a.listens[id] = filter
		a.mu.Unlock()
	default:
		if result, ok := lists[method]; ok {
			a.Reply(id, result[:len(result)-1]+`,`+head+`,"ttlMs":1000,"cacheScope":"public"}`)
			return
		}
		a.Refuse(id, -32601, "unknown method")
	}
}

// Listens returns the filters of the subscriptions that are open.
func (a *Actor) Listens() (out []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.listens {
		out = append(out, f)
	}
	return out
}

// Tell sends a change notification to every subscription; word is what the
// filter must hold. params are JSON, an object.
func (a *Actor) Tell(word, method, params string) {
	a.mu.Lock()
	var ids []string
	for id, f := range a.listens {
		if strings.Contains(f, word) {
			ids = append(ids, id)
		}
	}
	a.mu.Unlock()
	for _, id := range ids {
		meta := jsonrpc.Member{Key: "_meta", Value: fmt.Appendf(nil, `{%q:%s}`, metaSubscription, id)}
		a.Say(`{"jsonrpc":"2.0","method":%q,"params":%s}`, method, jsonrpc.AppendObject(nil, []byte(params), nil, meta))
	}
}

// ToolCall is one tools/call. All its parts are as they came.
type ToolCall struct {
	*Actor
	ID, Params, Args, Token string          // JSON
	State                   string          // requestState, JSON, "" for none
	Context                 context.Context // ends when the call is cancelled, and with the server
}

func (a *Actor) call(m *jsonrpc.Message) {
	params := m.Raw(jsonrpc.Params)
	c := &ToolCall{Actor: a, ID: string(m.Raw(jsonrpc.ID)), Params: string(params), Token: string(m.Raw(jsonrpc.MetaToken)),
		Args: string(jsonrpc.Get(params, "arguments")), State: string(jsonrpc.Get(params, "requestState"))}
	tool := a.troupe.Tools[string(m.Text(jsonrpc.Name))]
	if tool == nil {
		tool = ordinary[string(m.Text(jsonrpc.Name))]
	}
	if tool == nil {
		a.Refuse(c.ID, -32602, "unknown tool")
		return
	}
	ctx, cancel := context.WithCancel(a.ctx)
	c.Context = ctx
	a.mu.Lock()
	a.calls[c.ID] = cancel
	a.mu.Unlock()
	a.wg.Go(func() { // ends with the tool, which its context ends
		defer cancel()
		tool(c)
		a.mu.Lock()
		delete(a.calls, c.ID)
		a.mu.Unlock()
	})
}

// ordinary are the tools that every troupe has.
var ordinary = map[string]func(*ToolCall){
	"echo": func(c *ToolCall) { c.Result(`{"content":[],"structuredContent":` + cmp.Or(c.Args, "null") + `}`) },
	"sleep": func(c *ToolCall) {
		var a struct{ MS int }
		_ = json.Unmarshal([]byte(c.Args), &a)
		if c.Pause(time.Duration(a.MS) * time.Millisecond) {
			c.Text("slept")
		}
	},
	// where tells which server it is, and how often that was asked there.
	"where": func(c *ToolCall) {
		c.mu.Lock()
		n, _ := strconv.Atoi(c.Memory["where"])
		c.Memory["where"] = strconv.Itoa(n + 1)
		c.mu.Unlock()
		c.Text(fmt.Sprintf("%d:%d", c.Number, n+1))
	},
}

// Result ends the call; a stateless server adds what its era wants.
func (c *ToolCall) Result(result string) {
	if c.troupe.Stateless && strings.Contains(c.Params, metaVersion) && !strings.Contains(result, `"resultType"`) {
		result = string(jsonrpc.AppendObject(nil, []byte(result), nil, jsonrpc.Member{Key: "resultType", Value: []byte(`"complete"`)}))
	}
	c.Reply(c.ID, result)
}

// Text ends the call with one text.
func (c *ToolCall) Text(s string) {
	c.Result(string(jsonrpc.AppendString([]byte(`{"content":[{"type":"text","text":`), s)) + `}]}`)
}

// Pause waits, and reports whether the call goes on.
func (c *ToolCall) Pause(d time.Duration) bool { return pause(c.Context, d) == nil }

// Progress reports under the caller's token; how is the rest of the params.
func (c *ToolCall) Progress(how string) {
	c.Say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,%s}}`, c.Token, how)
}

// Log sends a log message.
func (c *ToolCall) Log(level, data string) {
	c.Say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":%q,"data":%q}}`, level, data)
}

// Response returns what a retry answers to the question of an input_required
// result, JSON, "" for nothing.
func (c *ToolCall) Response(key string) string {
	return string(jsonrpc.Get(jsonrpc.Get([]byte(c.Params), "inputResponses"), key))
}

// Ask puts a question to the client, as servers of the handshake era do, and
// returns its result, or its error, JSON; "" if the call ends before.
func (c *ToolCall) Ask(method, params string) string { return <-c.AskLater(method, params) }

// Withdraw gives up the question that the server put last.
func (a *Actor) Withdraw() {
	a.mu.Lock()
	n := a.asked
	a.mu.Unlock()
	a.Say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"ask %d<%d>"}}`, a.Number, n)
}

// AskLater is Ask without the wait.
func (c *ToolCall) AskLater(method, params string) <-chan string {
	answer, out := make(chan *jsonrpc.Message, 1), make(chan string, 1)
	c.mu.Lock()
	c.asked++
	id := strconv.Quote(fmt.Sprintf("ask %d<%d>", c.Number, c.asked))
	c.answers[id] = answer
	c.mu.Unlock()
	c.Say("%s", Request(id, method, params))
	c.wg.Go(func() { // ends with the call
		defer close(out)
		select {
		case m := <-answer:
			out <- cmp.Or(string(m.Raw(jsonrpc.Result)), string(m.Raw(jsonrpc.Error)))
		case <-c.Context.Done():
		}
	})
	return out
}
