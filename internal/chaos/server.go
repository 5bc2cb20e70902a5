package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/internal/lineserver"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// The tools of the server. They do the same; the gateway is to treat calls of
// toolLinger as lingering in every era.
const (
	toolWork   = "work"
	toolLinger = "linger"
)

// ToolLinger is the tool that is to be configured to linger on disconnect.
const ToolLinger = toolLinger

// ToolWork is the other one.
const ToolWork = toolWork

// Serve is the MCP server of a run on one connection. Each execution of a tool
// is noted when it begins and when it ends. stateless says that it speaks the
// stateless revisions, too. It returns at the end of r, or when ctx is done.
func Serve(ctx context.Context, r io.Reader, w io.Writer, stateless bool, note Note) error {
	s := server{stateless, note}
	return lineserver.Serve(ctx, r, w, lineserver.Options{Receive: s.receive})
}

type server struct {
	stateless bool
	note      Note
}

const toolList = `"tools":[{"name":"` + toolWork + `","inputSchema":{"type":"object"}},{"name":"` + toolLinger + `","inputSchema":{"type":"object"}}]`

// complete is what results of the stateless era have and others need not.
const complete = `"resultType":"complete","ttlMs":600000,"cacheScope":"public",`

func (s server) receive(c *lineserver.Conn, m lineserver.Message) {
	if m.ID == nil {
		return
	}
	modern := jsonrpc.Get(jsonrpc.Get(m.Params, "_meta"), era.MetaVersion) != nil
	var result string
	var err error
	switch {
	case m.Method == "tools/call":
		c.Go(m, func(ctx context.Context) (any, error) { return s.call(ctx, c, m.Params, modern) })
		return
	case m.Method == "initialize":
		var params struct {
			ProtocolVersion era.Version `json:"protocolVersion"`
		}
		_ = json.Unmarshal(m.Params, &params) // without a version, the newest is the answer
		result = fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{"tools":{}},"serverInfo":{"name":"chaos","version":"1"}}`,
			era.Negotiate(params.ProtocolVersion))
	case m.Method == "tools/list" && modern:
		result = `{` + complete + toolList + `}`
	case m.Method == "tools/list":
		result = `{` + toolList + `}`
	case m.Method == "ping":
		result = `{}`
	case m.Method == "server/discover" && s.stateless:
		result = fmt.Sprintf(`{%s"supportedVersions":[%q],"capabilities":{"tools":{}}}`, complete, era.V20260728)
	default:
		err = &lineserver.Error{Code: lineserver.MethodNotFound, Message: "unknown method " + m.Method}
	}
	_ = c.Reply(m, json.RawMessage(result), err) // fails only with the connection
}

// call is an execution: it takes its time, reports in steps, and answers with
// its nonce.
func (s server) call(ctx context.Context, c *lineserver.Conn, raw json.RawMessage, modern bool) (any, error) {
	var params struct {
		Arguments struct {
			Nonce  string `json:"nonce"`
			Micros int64  `json:"micros"`
			Steps  int    `json:"steps"`
			Pad    int    `json:"pad"`
		} `json:"arguments"`
		Meta struct {
			ProgressToken json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	}
	if err := json.Unmarshal(raw, &params); err != nil {
		return nil, &lineserver.Error{Code: lineserver.InvalidParams, Message: err.Error()}
	}
	a := params.Arguments
	s.note(Began, a.Nonce)
	steps := max(1, a.Steps)
	for n := range steps {
		if !pause(ctx, time.Duration(a.Micros)*time.Microsecond/time.Duration(steps)) {
			s.note(Cancelled, a.Nonce)
			return nil, context.Cause(ctx)
		}
		if a.Steps > 0 && params.Meta.ProgressToken != nil {
			progress := map[string]any{"progressToken": params.Meta.ProgressToken, "progress": n + 1, "total": steps, "message": a.Nonce}
			if err := c.Notify("notifications/progress", progress); err != nil { // the connection has gone
				s.note(Cancelled, a.Nonce)
				return nil, err
			}
		}
	}
	s.note(Ended, a.Nonce)
	extra := ""
	if modern {
		extra = `,"resultType":"complete"`
	}
	return json.RawMessage(fmt.Sprintf(`{"content":[{"type":"text"%s%s %s"}]%s}`, answerMark, a.Nonce, strings.Repeat("x", a.Pad), extra)), nil
}

// pause waits, and reports false if ctx ended before the time was over.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
