package testkit

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

// Message is any JSON-RPC message, its parts as they came.
type Message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *Error          `json:"error"`
	Bytes  []byte          `json:"-"` // the message itself
}

// Parse reads one message.
func Parse(data []byte) (Message, error) {
	m := Message{Bytes: data}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("testkit: message %.200q: %w", data, err)
	}
	return m, nil
}

// Text is the first text of a tool's result, and the error where there is one
// in its place, so that a test which compares it says what went wrong.
func (m Message) Text() string {
	if m.Error != nil {
		return m.Error.Error()
	}
	var r struct {
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
	}
	if err := json.Unmarshal(m.Result, &r); err != nil || len(r.Content) == 0 {
		return fmt.Sprintf("no text in %s", m.Bytes)
	}
	return r.Content[0].Text
}

// IsAnswer reports whether m is the response to the request id.
func (m Message) IsAnswer(id string) bool { return m.Method == "" && string(m.ID) == id }

// Request is a request, all parts but the method in JSON. Empty params are
// left out.
func Request(id, method, params string) []byte {
	if params == "" {
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":%q}`, id, method)
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params)
}

// Notification is a notification, its params in JSON. Empty ones are left out.
func Notification(method, params string) []byte {
	if params == "" {
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","method":%q}`, method)
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","method":%q,"params":%s}`, method, params)
}

// Reply is the response to the request id, both parts in JSON.
func Reply(id, result string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

// Refusal is the error response to the request id.
func Refusal(id string, code int, message string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`, id, code, message)
}

// CallTool is the request that calls a tool; args are JSON.
func CallTool(id, tool, args string) []byte {
	return Request(id, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, args))
}

// CallToolWithToken is CallTool with a progress token, which is JSON too.
func CallToolWithToken(id, tool, args, token string) []byte {
	return Request(id, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s,"_meta":{"progressToken":%s}}`, tool, args, token))
}

// InitializeParams are those of a client called name; capabilities are JSON.
func InitializeParams(version, capabilities, name string) string {
	return fmt.Sprintf(`{"protocolVersion":%q,"capabilities":%s,"clientInfo":{"name":%q,"version":"1.0.0"}}`,
		version, capabilities, name)
}

// Eventually asks ok again and again, until it says yes or the time is over:
// then the test fails, saying what did not come to pass.
func Eventually(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			if !ok() {
				t.Fatalf("not within %v: %s", within, what)
			}
			return
		}
	}
}
