// Package wire is what the HTTP bindings of all eras share: to read a message, and to answer without a stream.
package wire

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// HeaderKey is the header that makes a request known when it is sent again.
const HeaderKey = "Idempotency-Key"

// Limits of one HTTP exchange.
type Limits struct {
	MaxBody      int           // bytes of a request's body
	WriteTimeout time.Duration // for a write of up to 64 KiB
}

// Refusal is a request that is answered before any MCP code sees it.
type Refusal struct {
	Status int
	Code   int    // JSON-RPC error code
	ID     []byte // the request's id, if it is known
	Text   string // says what to do
	Retry  int    // Retry-After in seconds; 0: none
}

// Error implements error.
func (e *Refusal) Error() string { return e.Text }

// Refuse is Write for a refusal put together on the spot.
func Refuse(w http.ResponseWriter, status, code int, id []byte, format string, args ...any) {
	(&Refusal{Status: status, Code: code, ID: id, Text: fmt.Sprintf(format, args...)}).Write(w)
}

// Write answers with the refusal: its status, and a JSON-RPC error.
func (e *Refusal) Write(w http.ResponseWriter) {
	if e.Retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(e.Retry))
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(e.Status)
	_, _ = w.Write(jsonrpc.AppendError(nil, e.ID, e.Code, e.Text, nil))
}

// Malformed refuses a body that is no message. m is what could be read of it,
// nil for nothing.
func Malformed(m *jsonrpc.Message, err error) *Refusal {
	r := &Refusal{Status: http.StatusBadRequest, Code: jsonrpc.CodeInvalidRequest, Text: err.Error()}
	if errors.Is(err, jsonrpc.ErrSyntax) {
		r.Code = jsonrpc.CodeParse
	}
	if m != nil {
		r.ID = m.LegalID()
	}
	return r
}

var bodies = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

// Body is a request's body in a buffer that is used again.
type Body struct {
	Bytes []byte
	buf   *[]byte
}

// Release gives the buffer back. Nothing may refer to it any more.
func (b Body) Release() {
	if b.buf != nil && cap(*b.buf) <= 1<<20 {
		bodies.Put(b.buf)
	}
}

// ReadBody reads the body of a POST. The error is a Refusal: 415 for what is
// not plain JSON, 413 for what is too long, 408 for what does not arrive before
// the connection's read deadline. That must be set, and is lifted once the body is
// there; where it is refused the deadline stays, since net/http reads what is left
// of a body before it answers.
func ReadBody(w http.ResponseWriter, r *http.Request, l Limits) (Body, *Refusal) {
	if ct := r.Header.Get("Content-Type"); ct != "application/json" {
		if t, _, err := mime.ParseMediaType(ct); err != nil || t != "application/json" {
			return Body{}, &Refusal{Status: http.StatusUnsupportedMediaType, Code: jsonrpc.CodeInvalidRequest,
				Text: fmt.Sprintf("Content-Type must be application/json, not %.80q", ct)}
		}
	}
	if ce := r.Header.Get("Content-Encoding"); ce != "" && !strings.EqualFold(ce, "identity") {
		w.Header().Set("Accept-Encoding", "identity")
		return Body{}, &Refusal{Status: http.StatusUnsupportedMediaType, Code: jsonrpc.CodeInvalidRequest,
			Text: fmt.Sprintf("Content-Encoding %.40q is not supported: send the message uncompressed", ce)}
	}
	if r.ContentLength > int64(l.MaxBody) {
		w.Header().Set("Connection", "close") // the rest is not read
		return Body{}, tooLong(l)
	}
	buf := bodies.Get().(*[]byte)
	b, err := readAll(r.Body, (*buf)[:0], int(r.ContentLength), l.MaxBody)
	*buf = b[:0]
	body := Body{b, buf}
	switch {
	case errors.Is(err, errTooLong):
		body.Release()
		w.Header().Set("Connection", "close")
		return Body{}, tooLong(l)
	case err != nil:
		body.Release()
		w.Header().Set("Connection", "close")
		return Body{}, &Refusal{Status: http.StatusRequestTimeout, Code: jsonrpc.CodeParse,
			Text: fmt.Sprintf("the body did not arrive: %v", err)}
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	return body, nil
}

func tooLong(l Limits) *Refusal {
	return &Refusal{Status: http.StatusRequestEntityTooLarge, Code: jsonrpc.CodeInvalidRequest,
		Text: fmt.Sprintf("the message is longer than %d bytes (--max-body)", l.MaxBody)}
}

var errTooLong = errors.New("wire: body too long")

// readAll appends what r holds to b, up to limit. A length that is announced
// is believed only as far as bytes arrive for it: 1 MiB at a time.
func readAll(r io.Reader, b []byte, length, limit int) ([]byte, error) {
	if length > cap(b) {
		b = make([]byte, 0, min(length, 1<<20)+1)
	}
	for {
		if len(b) == cap(b) {
			grown := make([]byte, len(b), max(2*cap(b), 4<<10))
			copy(grown, b)
			b = grown
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case len(b) > limit:
			return b, errTooLong
		case err == io.EOF:
			return b, nil
		case err != nil:
			return b, err
		}
	}
}

// WriteJSON answers with one JSON body, written before it returns and within
// the write time-out.
func WriteJSON(w http.ResponseWriter, body []byte, l Limits) error {
	rc := http.NewResponseController(w)
	h := w.Header()
	h["Content-Type"] = jsonType
	h["Cache-Control"] = noStore
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(http.StatusOK)
	for {
		n := min(len(body), 64<<10)
		_ = rc.SetWriteDeadline(time.Now().Add(l.WriteTimeout))
		if _, err := w.Write(body[:n]); err != nil {
			return err
		}
		if body = body[n:]; len(body) == 0 {
			break
		}
	}
	err := rc.Flush()
	if errors.Is(err, http.ErrNotSupported) { // sent when the handler returns
		err = nil
	}
	// The connection may carry requests for other handlers next.
	_ = rc.SetWriteDeadline(time.Time{})
	return err
}

var (
	jsonType = []string{"application/json"}
	noStore  = []string{"no-store"}
)

// Accepts says which kinds of answer a request's Accept headers take.
func Accepts(r *http.Request) (json, events bool) {
	values := r.Header["Accept"]
	if len(values) == 0 {
		return true, true
	}
	for _, v := range values {
		if v == "application/json, text/event-stream" || v == "text/event-stream, application/json" {
			return true, true
		}
		for part := range strings.SplitSeq(v, ",") {
			t, params, _ := strings.Cut(part, ";")
			if refused(params) {
				continue
			}
			switch strings.ToLower(strings.TrimSpace(t)) {
			case "*/*":
				return true, true
			case "application/json", "application/*":
				json = true
			case "text/event-stream", "text/*":
				events = true
			}
		}
	}
	return json, events
}

// refused reports whether a media range's parameters give it the weight 0
// (RFC 9110 section 12.4.2).
func refused(params string) bool {
	for p := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(p), "=")
		if weight, err := strconv.ParseFloat(value, 64); strings.EqualFold(name, "q") && err == nil && weight == 0 {
			return true
		}
	}
	return false
}

// Principal is who a request comes from, as far as it can be told without
// authentication.
func Principal(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return host + "\x00" + r.Header.Get("X-Forwarded-For") + "\x00" + r.Header.Get("Authorization")
}

// ClientKey tells one client's initialize from another's: by where it comes
// from, and by all that it says.
func ClientKey(r *http.Request, m *jsonrpc.Message) string {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	sum := sha256.New()
	for _, part := range []string{host, r.Header.Get("X-Forwarded-For"), r.Header.Get("Authorization"), string(m.Raw(jsonrpc.Params))} {
		_, _ = fmt.Fprintf(sum, "%d:%s", len(part), part)
	}
	return string(sum.Sum(nil))
}

// Route is how a request reached the gateway: the address of who sent it, and
// whom that one forwards for.
func Route(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	if f := r.Header.Get("X-Forwarded-For"); f != "" {
		host += " for " + f[:min(len(f), 100)]
	}
	return host
}
