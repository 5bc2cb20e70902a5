package holdfast_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// farm makes MCP servers in this process, one for each that would be a child,
// and keeps every line that they were sent. Its fields are not to be changed
// once the gateway is started.
type farm struct {
	tools   map[string]func(call *fakeCall)              // by name; run in goroutines of their own
	methods map[string]func(k *fake, m *jsonrpc.Message) // requests and notifications, on the goroutine that reads
	born    func(k *fake)                                // before anything is read

	mu   sync.Mutex // guards the fields below
	kids []*fake
	ran  map[string]int // executions by tool
}

// fake is one server.
type fake struct {
	farm   *farm
	number int
	ctx    context.Context
	wg     sync.WaitGroup

	wmu sync.Mutex // serializes lines
	w   io.Writer

	mu    sync.Mutex // guards the fields below
	lines []string
	ended bool
}

// fakeCall is one tools/call.
type fakeCall struct {
	k                       *fake
	id, params, args, token string // raw JSON
	name                    string
}

// reset forgets what an earlier bench did with the farm.
func (f *farm) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kids, f.ran = nil, nil
}

// serve implements holdfast.Server.Serve.
func (f *farm) serve(ctx context.Context, r io.ReadCloser, w io.WriteCloser) error {
	ctx, cancel := context.WithCancel(ctx)
	k := &fake{farm: f, ctx: ctx, w: w}
	f.mu.Lock()
	k.number = len(f.kids)
	f.kids = append(f.kids, k)
	f.mu.Unlock()
	defer func() {
		cancel()
		_ = r.Close()
		_ = w.Close()
		k.wg.Wait()
		k.mu.Lock()
		k.ended = true
		k.mu.Unlock()
	}()
	stop := context.AfterFunc(ctx, func() { _ = r.Close(); _ = w.Close() })
	defer stop()
	if f.born != nil {
		f.born(k)
	}
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		k.take(strings.TrimSuffix(line, "\n"))
	}
}

func (k *fake) take(line string) {
	k.mu.Lock()
	k.lines = append(k.lines, line)
	k.mu.Unlock()
	m, err := jsonrpc.Parse([]byte(line))
	if err != nil || m.Kind() == jsonrpc.Response {
		return
	}
	method := string(m.Text(jsonrpc.Method))
	if h := k.farm.methods[method]; h != nil {
		h(k, m)
		return
	}
	if m.Kind() != jsonrpc.Request {
		return
	}
	id := string(m.Raw(jsonrpc.ID))
	switch method {
	case "initialize":
		k.welcome(m)
	case "tools/call":
		k.call(m)
	case "tools/list":
		k.reply(id, `{"tools":[]}`)
	case "ping", "resources/subscribe", "logging/setLevel":
		k.reply(id, `{}`)
	default:
		k.line(`{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32601,"message":"unknown method"}}`)
	}
}

// welcome answers initialize.
func (k *fake) welcome(m *jsonrpc.Message) {
	k.reply(string(m.Raw(jsonrpc.ID)), `{"protocolVersion":`+string(m.Raw(jsonrpc.ProtocolVersion))+
		`,"capabilities":{"tools":{"listChanged":true},"logging":{},"resources":{"subscribe":true}},"serverInfo":{"name":"kid","version":"1"}}`)
}

func (k *fake) call(m *jsonrpc.Message) {
	var params map[string]json.RawMessage // a struct would take Arguments, too
	c := &fakeCall{
		k: k, id: string(m.Raw(jsonrpc.ID)), name: string(m.Text(jsonrpc.Name)),
		params: string(m.Raw(jsonrpc.Params)), token: string(m.Raw(jsonrpc.MetaToken)),
	}
	_ = json.Unmarshal([]byte(c.params), &params)
	c.args = string(params["arguments"])
	k.farm.mu.Lock()
	if k.farm.ran == nil {
		k.farm.ran = map[string]int{}
	}
	k.farm.ran[c.name]++
	k.farm.mu.Unlock()
	run := k.farm.tools[c.name]
	if run == nil {
		run = standard[c.name]
	}
	if run == nil {
		k.line(`{"jsonrpc":"2.0","id":` + c.id + `,"error":{"code":-32602,"message":"unknown tool"}}`)
		return
	}
	k.wg.Go(func() { run(c) }) // ends with the tool, which k.ctx ends
}

// standard are the tools that every kid has.
var standard = map[string]func(*fakeCall){
	"echo": func(c *fakeCall) { c.reply(`{"content":[],"structuredContent":` + c.args + `}`) },
	"sleep": func(c *fakeCall) {
		var a struct{ MS int }
		_ = json.Unmarshal([]byte(c.args), &a)
		if c.pause(time.Duration(a.MS) * time.Millisecond) {
			c.reply(`{"content":[{"type":"text","text":"slept"}]}`)
		}
	},
}

// pause waits, and reports whether the server still lives.
func (c *fakeCall) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-c.k.ctx.Done():
		return false
	}
}

func (c *fakeCall) reply(result string) { c.k.reply(c.id, result) }

func (k *fake) reply(id, result string) {
	k.line(`{"jsonrpc":"2.0","id":` + id + `,"result":` + result + `}`)
}

// progress reports under the caller's token. how is the rest of the params.
func (c *fakeCall) progress(how string) {
	c.k.line(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + c.token + `,` + how + `}}`)
}

// line writes one line, whatever it holds.
func (k *fake) line(s string) {
	k.wmu.Lock()
	defer k.wmu.Unlock()
	_, _ = io.WriteString(k.w, s+"\n") // fails only when the gateway has gone
}

// told returns the lines that hold all the words.
func (k *fake) told(words ...string) (out []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
next:
	for _, line := range k.lines {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue next
			}
		}
		out = append(out, line)
	}
	return out
}

func (k *fake) gone() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ended
}

// all returns the servers that were started.
func (f *farm) all() []*fake {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]*fake(nil), f.kids...)
}

// told returns the lines that any server was sent and that hold all the words.
func (f *farm) told(words ...string) (out []string) {
	for _, k := range f.all() {
		out = append(out, k.told(words...)...)
	}
	return out
}

// alive returns how many servers run.
func (f *farm) alive() (n int) {
	for _, k := range f.all() {
		if !k.gone() {
			n++
		}
	}
	return n
}

// executed returns how often each tool ran.
func (f *farm) executed() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.ran)
}
