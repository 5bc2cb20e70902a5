package exchange

import (
	"context"
	"errors"

	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Ask sends a request of the gateway's own in the name of the client that sent
// like, and waits for its result, raw JSON. params is an object without _meta.
func (h *Host) Ask(ctx context.Context, principal string, like *jsonrpc.Message, method string, params []byte) ([]byte, error) {
	meta := jsonrpc.AppendObject(nil, like.Raw(jsonrpc.Meta), []string{"progressToken", era.MetaLogLevel})
	line := jsonrpc.AppendString([]byte(`{"jsonrpc":"2.0","id":0,"method":`), method)
	line = append(append(line, `,"params":`...), jsonrpc.AppendObject(nil, params, nil, jsonrpc.Member{Key: "_meta", Value: meta})...)
	m, err := jsonrpc.Parse(append(line, '}'))
	if err != nil {
		return nil, err
	}
	answered := make(chan []byte, 1)
	cancel, fail := h.Serve(Request{Principal: principal, Message: m, Emit: func(msg []byte, final bool) {
		if final {
			answered <- msg
		}
	}})
	if fail != nil {
		return nil, fail
	}
	select {
	case <-ctx.Done():
		cancel("no longer wanted")
		return nil, context.Cause(ctx)
	case msg := <-answered:
		m, err := jsonrpc.Parse(msg)
		if err != nil {
			return nil, err
		}
		if !m.Has(jsonrpc.Result) {
			return nil, errors.New(string(m.Raw(jsonrpc.Error)))
		}
		return m.Raw(jsonrpc.Result), nil
	}
}
