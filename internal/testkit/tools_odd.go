package testkit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/holdfast-mcp/holdfast/internal/lineserver"
)

const (
	formParams = `{"message":%s,"requestedSchema":{"type":"object","properties":{"answer":{"type":"string"}},"required":["answer"]}}`
	urlParams  = `{"mode":"url","message":%s,"url":%s,"elicitationId":%s}`
	sampling   = `{"messages":[{"role":"user","content":{"type":"text","text":%s}}],"maxTokens":10}`
)

// request asks the client and answers the call with what came back: its text
// is the result's raw JSON, or an isError of the error's code and message.
// With ms it gives up after that time.
func (c *call) request(ctx context.Context) (any, error) {
	method, params, err := c.question()
	if err != nil {
		return nil, err
	}
	if c.args.MS > 0 {
		timed, stop := context.WithTimeout(ctx, c.duration())
		defer stop()
		ctx = timed
	}
	result, err := c.conn.Call(ctx, method, orNil(params))
	if refused, ok := errors.AsType[*Error](err); ok {
		return map[string]any{
			"content": []any{text(fmt.Sprintf("%d %s", refused.Code, refused.Message))}, "isError": true,
		}, nil
	}
	if err != nil {
		return nil, err
	}
	if c.args.Mode == "url" {
		id, err := lineserver.Encode(cmp.Or(c.args.Key, "e1"))
		if err != nil {
			return nil, err
		}
		done := json.RawMessage(`{"elicitationId":` + string(id) + `}`)
		if err := c.conn.Notify("notifications/elicitation/complete", done); err != nil {
			return nil, err
		}
	}
	return toolText(string(result)), nil
}

func (c *call) question() (method string, params json.RawMessage, err error) {
	quote := func(s string) string {
		raw, e := lineserver.Encode(s)
		err = errors.Join(err, e)
		return string(raw)
	}
	message := quote(cmp.Or(c.args.Message, "?"))
	switch {
	case c.name == "ask" && c.args.Mode == "url":
		params = fmt.Appendf(nil, urlParams, message,
			quote(cmp.Or(c.args.URL, "https://example.com/")), quote(cmp.Or(c.args.Key, "e1")))
		return "elicitation/create", params, err
	case c.name == "ask":
		return "elicitation/create", fmt.Appendf(nil, formParams, message), err
	case c.name == "sample":
		return "sampling/createMessage", fmt.Appendf(nil, sampling, message), err
	case c.name == "roots":
		return "roots/list", nil, err
	}
	return c.args.Method, c.args.Params, err
}

// end is crash and exit-after-reply, both after ms.
func (c *call) end(ctx context.Context) (any, error) {
	if err := pause(ctx, c.duration()); err != nil {
		return nil, err
	}
	if c.args.Stderr != "" {
		if _, err := fmt.Fprintln(c.opts.Stderr, c.args.Stderr); err != nil {
			return nil, fmt.Errorf("testkit: stderr: %w", err)
		}
	}
	if c.name == "exit-after-reply" {
		if err := c.conn.Reply(c.msg, toolText("bye"), nil); err != nil {
			return nil, err
		}
		if err := c.conn.Flush(); err != nil {
			return nil, err
		}
	} else if c.args.Code == 0 {
		c.args.Code = 1
	}
	c.exit(c.conn, c.args.Code)
	return nil, lineserver.ErrNoReply
}

// closeStdin leaves the process alive but unable to hear, for ms. It runs on
// the goroutine that reads, the only place where no read is under way.
func (c *call) closeStdin() {
	err := c.conn.Reply(c.msg, toolText("closing"), nil)
	if err == nil {
		err = c.conn.Flush()
	}
	if input, ok := c.input.(io.Closer); ok && err == nil {
		_ = input.Close()
		_ = pause(c.conn.Context(), c.duration())
	}
}

// whoami is all that this server was told, and what it is.
func (c *call) whoami() (any, error) {
	var params struct {
		ClientInfo      json.RawMessage `json:"clientInfo"`
		Capabilities    json.RawMessage `json:"capabilities"`
		ProtocolVersion string          `json:"protocolVersion"`
	}
	cwd, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("testkit: whoami: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := decode(c.initParams, &params); err != nil {
		return nil, err
	}
	subscribed := slices.AppendSeq([]string{}, maps.Keys(c.subscribed))
	slices.Sort(subscribed)
	return toolJSON(Identity{
		ClientInfo: params.ClientInfo, Capabilities: params.Capabilities,
		ProtocolVersion: params.ProtocolVersion, Negotiated: c.version, Initialized: c.initialized,
		LogLevel: c.logLevel, Subscribed: subscribed, InvalidLines: c.invalid,
		Pid: os.Getpid(), Ppid: os.Getppid(), Cwd: cwd, Args: os.Args[1:],
	})
}

// Identity is what the tool whoami answers with.
type Identity struct {
	ClientInfo      json.RawMessage `json:"clientInfo"`   // of initialize, as it came
	Capabilities    json.RawMessage `json:"capabilities"` // of initialize, as it came
	ProtocolVersion string          `json:"protocolVersion"`
	Negotiated      string          `json:"negotiated"`
	Initialized     bool            `json:"initialized"` // notifications/initialized has come
	LogLevel        string          `json:"logLevel"`
	Subscribed      []string        `json:"subscribed"`
	InvalidLines    []string        `json:"invalidLines"` // what was not a message
	Pid             int             `json:"pid"`
	Ppid            int             `json:"ppid"`
	Cwd             string          `json:"cwd"`
	Args            []string        `json:"args"`
}
