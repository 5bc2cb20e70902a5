package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Probe finds out whether a server can be reached and speaks MCP, of the newest
// era or an older one. It tries for o.ReconnectWait, and returns why not.
func Probe(ctx context.Context, o Options) error {
	heard := make(answers, 4)
	l, err := Dial(o, heard)
	if err != nil {
		return err
	}
	defer l.Stop()
	m, err := heard.ask(ctx, l, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":"probe-1","method":"server/discover","params":{"_meta":{%q:%q,%q:{}}}}`,
		era.MetaVersion, era.V20260728, era.MetaCapabilities))
	if err != nil {
		return err
	}
	switch fault := m.Raw(jsonrpc.Error); {
	case fault == nil, era.RecognizedModernError(fault):
		return nil
	case jsonrpc.Get(jsonrpc.Get(fault, "data"), "outcome") != nil && jsonrpc.Get(jsonrpc.Get(fault, "data"), "status") == nil:
		return said(fault) // it was not reached
	}
	m, err = heard.ask(ctx, l, fmt.Appendf(nil,
		`{"jsonrpc":"2.0","id":"probe-2","method":"initialize","params":{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"holdfast","version":%q}}}`,
		era.NewestHandshake, l.o.Version))
	if err != nil {
		return err
	}
	if fault := m.Raw(jsonrpc.Error); fault != nil {
		return said(fault)
	}
	return nil
}

// said is an error with the text of another one.
func said(fault []byte) error {
	var text string
	if json.Unmarshal(jsonrpc.Get(fault, "message"), &text) != nil {
		text = string(fault[:min(len(fault), 200)])
	}
	return errors.New("remote: " + text)
}

// answers takes what a probed server answers.
type answers chan *jsonrpc.Message

// Line implements stdio.Handler.
func (a answers) Line(line []byte) {
	m, err := jsonrpc.Parse(bytes.Clone(line))
	if err != nil || m.Kind() != jsonrpc.Response {
		return
	}
	select {
	case a <- m:
	default:
	}
}

// Oversize implements stdio.Handler.
func (answers) Oversize([]byte, int) {}

// Closed implements stdio.Handler.
func (answers) Closed(error) {}

// ask sends one request and returns its answer.
func (a answers) ask(ctx context.Context, l *Link, line []byte) (*jsonrpc.Message, error) {
	if err := l.SendRaw(line); err != nil {
		return nil, err
	}
	select {
	case m := <-a:
		return m, nil
	case <-l.ctx.Done():
		return nil, context.Cause(l.ctx)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
