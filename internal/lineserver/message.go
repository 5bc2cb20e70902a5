package lineserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// Error codes of JSON-RPC 2.0, section 5.1.
const (
	InvalidRequest = -32600
	MethodNotFound = -32601
	InvalidParams  = -32602
	InternalError  = -32603
)

// Error is the error of a JSON-RPC response, sent or received.
type Error struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e *Error) Error() string { return fmt.Sprintf("%s (%d)", e.Message, e.Code) }

// response is what a Call waits for.
type response struct{ result, err json.RawMessage }

// Encode is json.Marshal, except that <, > and & stay as they are.
func Encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("lineserver: encode: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// part is Encode, except that a json.RawMessage is taken byte for byte.
func part(v any) (json.RawMessage, error) {
	if raw, ok := v.(json.RawMessage); ok {
		return raw, nil
	}
	return Encode(v)
}

// Reply answers the request m, with its id byte for byte. A json.RawMessage as
// the result is sent as it is and must hold no line end, any other value is
// encoded. An *Error is sent as it is, ErrNoReply sends nothing, any other
// error becomes an InternalError. The error that Reply returns is that of the
// connection.
func (c *Conn) Reply(m Message, result any, err error) error {
	if m.ID == nil || errors.Is(err, ErrNoReply) {
		return nil
	}
	key, value := "result", result
	if err == nil {
		value, err = part(result)
	}
	if err != nil {
		var e *Error
		if !errors.As(err, &e) {
			e = &Error{Code: InternalError, Message: err.Error()}
		}
		key, value = "error", e
	}
	raw, err := part(value)
	if err != nil {
		return err
	}
	line := make([]byte, 0, len(`{"jsonrpc":"2.0","id":,"result":}`)+len(m.ID)+len(raw)+1)
	line = append(line, `{"jsonrpc":"2.0","id":`...)
	line = append(line, m.ID...)
	line = append(line, `,"`+key+`":`...)
	line = append(line, raw...)
	line = append(line, '}')
	return c.WriteLine(line)
}

// Notify sends a notification; params of nil are left out, a json.RawMessage
// is sent as it is.
func (c *Conn) Notify(method string, params any) error {
	return c.call("", method, params)
}

// Call sends a request and waits for the answer. An error answer is an *Error.
// When ctx ends first, the request is cancelled at the peer too, unless that
// peer has ended the connection.
func (c *Conn) Call(ctx context.Context, method string, params any) (json.RawMessage, error) {
	answer := make(chan response, 1)
	c.mu.Lock()
	c.lastCall++
	id := strconv.FormatInt(c.lastCall, 10)
	c.calls[id] = answer
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.calls, id)
		c.mu.Unlock()
	}()
	if err := c.call(id, method, params); err != nil {
		return nil, err
	}
	select {
	case a := <-answer:
		if a.err == nil {
			return a.result, nil
		}
		var e Error
		if err := json.Unmarshal(a.err, &e); err != nil {
			return nil, fmt.Errorf("lineserver: error of %s: %w", method, err)
		}
		return nil, &e
	case <-ctx.Done():
		if c.work.Err() == nil {
			params := json.RawMessage(`{"requestId":` + id + `,"reason":"no longer needed"}`)
			_ = c.Notify("notifications/cancelled", params)
		}
		return nil, fmt.Errorf("lineserver: %s: %w", method, context.Cause(ctx))
	case <-c.ctx.Done():
		return nil, context.Cause(c.ctx)
	}
}

// deliver hands a response to its Call and reports whether there is one.
func (c *Conn) deliver(id string, r response) bool {
	c.mu.Lock()
	answer := c.calls[id]
	delete(c.calls, id)
	c.mu.Unlock()
	if answer == nil {
		return false
	}
	answer <- r // has room for the one answer
	return true
}

func (c *Conn) call(id, method string, params any) error {
	name, err := Encode(method)
	if err != nil {
		return err
	}
	line := []byte(`{"jsonrpc":"2.0"`)
	if id != "" {
		line = append(line, `,"id":`+id...)
	}
	line = append(line, `,"method":`...)
	line = append(line, name...)
	if params != nil {
		raw, err := part(params)
		if err != nil {
			return err
		}
		line = append(line, `,"params":`...)
		line = append(line, raw...)
	}
	line = append(line, '}')
	return c.WriteLine(line)
}
