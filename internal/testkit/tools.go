package testkit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/lineserver"
)

// toolList describes the tools. The first one holds what a gateway that
// decodes and encodes again would change.
const toolList = `[{"name":"echo","title":"<Echo> & co","description":"Returns its text; with raw its arguments, byte for byte.",` +
	`"inputSchema":{"type":"object","properties":{"text":{"type":"string"},"raw":{"type":"boolean"},` +
	`"big":{"type":"integer","maximum":9223372036854775807,"multipleOf":1.0}}},` +
	`"outputSchema":{"type":"object"},"icons":[{"src":"data:,"}],"execution":{"taskSupport":"forbidden"},` +
	`"_meta":{"example.com/unknown":{"b":1e400,"a":-0}},"unknownField":[0.1000]},` +
	`{"name":"sleep","inputSchema":{"type":"object"}},{"name":"progress","inputSchema":{"type":"object"}},` +
	`{"name":"log","inputSchema":{"type":"object"}},{"name":"ask","inputSchema":{"type":"object"}},` +
	`{"name":"sample","inputSchema":{"type":"object"}},{"name":"roots","inputSchema":{"type":"object"}},` +
	`{"name":"request","inputSchema":{"type":"object"}},{"name":"notify","inputSchema":{"type":"object"}},` +
	`{"name":"big","inputSchema":{"type":"object"}},{"name":"stderr","inputSchema":{"type":"object"}},` +
	`{"name":"junk","inputSchema":{"type":"object"}},{"name":"crash","inputSchema":{"type":"object"}},` +
	`{"name":"exit-after-reply","inputSchema":{"type":"object"}},{"name":"whoami","inputSchema":{"type":"object"}},` +
	`{"name":"count","inputSchema":{"type":"object"}},{"name":"block","inputSchema":{"type":"object"}},` +
	`{"name":"close-stdin","inputSchema":{"type":"object"}},{"name":"list_changed","inputSchema":{"type":"object"}},` +
	`{"name":"touch","inputSchema":{"type":"object"}},{"name":"env","inputSchema":{"type":"object"}},` +
	`{"name":"spawn","inputSchema":{"type":"object"}},{"name":"fail","inputSchema":{"type":"object"}},` +
	`{"name":"error","inputSchema":{"type":"object"}}]`

// call is one tools/call.
type call struct {
	*server
	conn  *lineserver.Conn
	msg   lineserver.Message
	name  string
	token json.RawMessage // the caller's progress token, if any
	raw   json.RawMessage // the arguments as they came
	args  arguments
}

// arguments are those of all tools together.
type arguments struct {
	MS           int             `json:"ms"`
	Key          string          `json:"key"`
	IgnoreCancel bool            `json:"ignoreCancel"`
	N            int             `json:"n"`
	IntervalMS   int             `json:"intervalMs"`
	Pad          int             `json:"pad"`
	Level        string          `json:"level"`
	Message      string          `json:"message"`
	Mode         string          `json:"mode"`
	URL          string          `json:"url"`
	Method       string          `json:"method"`
	Params       json.RawMessage `json:"params"`
	Bytes        int             `json:"bytes"`
	Newline      bool            `json:"newline"`
	Code         int             `json:"code"`
	Stderr       string          `json:"stderr"`
	Kind         string          `json:"kind"`
	URI          string          `json:"uri"`
	Name         string          `json:"name"`
	Inherit      bool            `json:"inherit"`
}

func (s *server) callTool(conn *lineserver.Conn, m lineserver.Message) {
	c := &call{server: s, conn: conn, msg: m}
	if err := c.parse(); err != nil {
		_ = conn.Reply(m, nil, err) // fails only with the connection
		return
	}
	switch c.name {
	case "block":
		// On the goroutine that reads: nothing else is read meanwhile.
		err := pause(conn.Context(), c.duration())
		_ = conn.Reply(m, toolText("blocked"), err)
	case "close-stdin":
		c.closeStdin()
	default:
		conn.Go(m, c.run)
	}
}

// parse goes by maps, as a struct would match keys of any case.
func (c *call) parse() error {
	var params, meta map[string]json.RawMessage
	if err := decode(c.msg.Params, &params); err != nil {
		return err
	}
	if err := json.Unmarshal(params["name"], &c.name); err != nil {
		return invalidParams("name: %v", err)
	}
	if err := decode(params["_meta"], &meta); err != nil {
		return err
	}
	c.token, c.raw = meta["progressToken"], params["arguments"]
	if c.name == "echo" {
		return nil // which takes them as they are
	}
	return decode(c.raw, &c.args)
}

func (c *call) run(ctx context.Context) (any, error) {
	switch c.name {
	case "echo":
		return c.echo()
	case "sleep":
		return c.sleep(ctx)
	case "progress":
		return c.progress(ctx)
	case "log":
		return c.log(ctx)
	case "ask", "sample", "roots", "request":
		return c.request(ctx)
	case "big":
		return toolText(strings.Repeat("x", c.args.Bytes)), nil
	case "stderr":
		return toolText("written"), c.spam(c.args.Bytes, c.args.Newline)
	case "crash", "exit-after-reply":
		return c.end(ctx)
	case "spawn":
		return spawn(c.args.Inherit)
	case "fail":
		return map[string]any{"content": []any{text(cmp.Or(c.args.Message, "failed"))}, "isError": true}, nil
	case "error":
		return nil, &Error{Code: cmp.Or(c.args.Code, -32000), Message: cmp.Or(c.args.Message, "refused"), Data: json.RawMessage(`{"n":1.0}`)}
	}
	return c.runShort()
}

// runShort are the tools that wait for nothing.
func (c *call) runShort() (any, error) {
	switch c.name {
	case "junk":
		return toolText("written"), junk(c.conn)
	case "whoami":
		return c.whoami()
	case "count":
		return toolJSON(c.counts.get(c.args.Key))
	case "notify":
		return toolText("sent"), c.conn.Notify(c.args.Method, orNil(c.args.Params))
	case "list_changed":
		return toolText("sent"), c.conn.Notify("notifications/"+cmp.Or(c.args.Kind, "tools")+"/list_changed", nil)
	case "touch":
		c.mu.Lock()
		subscribed := c.subscribed[c.args.URI]
		c.mu.Unlock()
		if subscribed {
			if err := c.conn.Notify("notifications/resources/updated", map[string]string{"uri": c.args.URI}); err != nil {
				return nil, err
			}
		}
		return toolText(fmt.Sprintf("subscribed=%t", subscribed)), nil
	case "env":
		value, set := os.LookupEnv(c.args.Name)
		return toolJSON(map[string]any{"set": set, "value": value})
	}
	return nil, invalidParams("unknown tool %q", c.name)
}

func (c *call) duration() time.Duration { return time.Duration(c.args.MS) * time.Millisecond }

// echo keeps to bytes: its arguments may hold what no Go type does.
func (c *call) echo() (any, error) {
	var args map[string]json.RawMessage
	if err := decode(c.raw, &args); err != nil {
		return nil, err
	}
	if string(args["raw"]) != "true" {
		var said string
		err := decode(args["text"], &said)
		return toolText(said), err
	}
	quoted, err := lineserver.Encode(string(c.raw))
	if err != nil {
		return nil, err
	}
	// Put together by hand, for the encoder would compact the arguments.
	return json.RawMessage(bytes.Join([][]byte{
		[]byte(`{"content":[{"type":"text","text":`), quoted, []byte(`}],"structuredContent":`), c.raw, []byte(`}`),
	}, nil)), nil
}

func (c *call) sleep(ctx context.Context) (any, error) {
	if err := c.counts.effect(c.args.Key, countStart); err != nil {
		return nil, err
	}
	if c.args.IgnoreCancel {
		ctx = c.conn.Context()
	}
	if err := pause(ctx, c.duration()); err != nil {
		return nil, errors.Join(err, c.counts.effect(c.args.Key, countCancel))
	}
	return toolText("slept"), c.counts.effect(c.args.Key, countEnd)
}

// progress is sent only to a caller that gave a token.
func (c *call) progress(ctx context.Context) (any, error) {
	if err := c.counts.effect(c.args.Key, countStart); err != nil {
		return nil, err
	}
	pad := strings.Repeat("p", c.args.Pad)
	for i := range c.args.N {
		if err := pause(ctx, time.Duration(c.args.IntervalMS)*time.Millisecond); err != nil {
			return nil, errors.Join(err, c.counts.effect(c.args.Key, countCancel))
		}
		if c.token == nil {
			continue
		}
		err := c.conn.Notify("notifications/progress", struct {
			ProgressToken json.RawMessage `json:"progressToken"`
			Progress      int             `json:"progress"`
			Total         int             `json:"total"`
			Message       string          `json:"message,omitempty"`
		}{c.token, i + 1, c.args.N, pad})
		if err != nil {
			return nil, err
		}
	}
	return toolText(fmt.Sprintf("emitted=%d", c.args.N)), c.counts.effect(c.args.Key, countEnd)
}

func (c *call) log(ctx context.Context) (any, error) {
	level, sent := cmp.Or(c.args.Level, "info"), 0
	for i := range max(1, c.args.N) {
		if err := pause(ctx, time.Duration(c.args.IntervalMS)*time.Millisecond); err != nil {
			return nil, err
		}
		if !c.logs(level) {
			continue
		}
		sent++
		err := c.conn.Notify("notifications/message", map[string]any{
			"level": level, "logger": "testkit", "data": fmt.Sprintf("%s%d", c.args.Message, i+1),
		})
		if err != nil {
			return nil, err
		}
	}
	return toolText(fmt.Sprintf("logged=%d", sent)), nil
}

func text(s string) map[string]string { return map[string]string{"type": "text", "text": s} }

func toolText(s string) any { return map[string]any{"content": []any{text(s)}} }

// toolJSON is a result whose text and whose structured content are v.
func toolJSON(v any) (any, error) {
	raw, err := lineserver.Encode(v)
	if err != nil {
		return nil, err
	}
	return map[string]any{"content": []any{text(string(raw))}, "structuredContent": raw}, nil
}

// orNil turns params that are not there into none.
func orNil(raw json.RawMessage) any {
	if raw == nil {
		return nil
	}
	return raw
}
