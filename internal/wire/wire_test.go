package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/testkit"
)

var limits = Limits{MaxBody: 1000, WriteTimeout: 3 * time.Second}

func TestAccepts(t *testing.T) {
	for _, tc := range []struct {
		accept       []string
		json, events bool
	}{
		{nil, true, true},
		{[]string{""}, false, false},
		{[]string{"*/*"}, true, true},
		{[]string{"application/json, text/event-stream"}, true, true},
		{[]string{"text/event-stream, application/json"}, true, true},
		{[]string{"application/json"}, true, false},
		{[]string{"text/event-stream"}, false, true},
		{[]string{"Application/JSON"}, true, false},
		{[]string{"application/*"}, true, false},
		{[]string{"text/*"}, false, true},
		{[]string{"text/html"}, false, false},
		{[]string{"text/event-streams"}, false, false},
		{[]string{"application/json", "text/event-stream"}, true, true},
		{[]string{"text/event-stream;q=0.5,application/json ; q=1"}, true, true},
		{[]string{"text/event-stream;q=0, application/json"}, true, false},
		{[]string{"text/event-stream ; q=0.000, application/json"}, true, false},
		{[]string{"text/event-stream;charset=utf-8;Q=0, application/json"}, true, false},
		{[]string{"text/event-stream;q=0.001"}, false, true},
		{[]string{"application/json;charset=utf-8,text/html, */*;q=0"}, true, false},
		{[]string{",,, ;q=0,;"}, false, false},
	} {
		j, e := Accepts(&http.Request{Header: http.Header{"Accept": tc.accept}})
		if tc.accept == nil {
			j, e = Accepts(&http.Request{Header: http.Header{}})
		}
		if j != tc.json || e != tc.events {
			t.Errorf("Accept %q: json %v, events %v", tc.accept, j, e)
		}
	}
}

func TestReadBody(t *testing.T) {
	for _, tc := range []struct {
		name, contentType, encoding string
		body                        io.Reader
		length                      int64
		status                      int // 0: accepted
		want                        string
	}{
		{"plain", "application/json", "", strings.NewReader("{}"), 2, 0, "{}"},
		{"with a charset", "application/json; charset=utf-8", "", strings.NewReader("{}"), 2, 0, "{}"},
		{"in capitals", "Application/JSON", "", strings.NewReader("{}"), 2, 0, "{}"},
		{"identity", "application/json", "Identity", strings.NewReader("{}"), 2, 0, "{}"},
		{"empty", "application/json", "", strings.NewReader(""), 0, 0, ""},
		{"chunked, byte by byte", "application/json", "", iotest.OneByteReader(strings.NewReader(strings.Repeat("x", 1000))), -1, 0, strings.Repeat("x", 1000)},
		{"as long as may be", "application/json", "", strings.NewReader(strings.Repeat("x", 1000)), 1000, 0, strings.Repeat("x", 1000)},
		{"announced as too long", "application/json", "", strings.NewReader(""), 1001, 413, "--max-body"},
		{"too long without a length", "application/json", "", strings.NewReader(strings.Repeat("x", 1001)), -1, 413, "--max-body"},
		{"longer than announced", "application/json", "", strings.NewReader(strings.Repeat("x", 5000)), 10, 413, "--max-body"},
		{"no type", "", "", strings.NewReader("{}"), 2, 415, "application/json"},
		{"a form", "application/x-www-form-urlencoded", "", strings.NewReader("{}"), 2, 415, "application/json"},
		{"text, as a page may send", "text/plain", "", strings.NewReader("{}"), 2, 415, "application/json"},
		{"a lookalike", "application/jsonx", "", strings.NewReader("{}"), 2, 415, "application/json"},
		{"malformed type", "application/json; =", "", strings.NewReader("{}"), 2, 415, "application/json"},
		{"gzip", "application/json", "gzip", strings.NewReader("{}"), 2, 415, "uncompressed"},
		{"broken off", "application/json", "", io.MultiReader(strings.NewReader("{"), iotest.ErrReader(io.ErrUnexpectedEOF)), 2, 408, "did not arrive"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/mcp", tc.body)
			r.ContentLength = tc.length
			r.Header.Set("Content-Type", tc.contentType)
			if tc.encoding != "" {
				r.Header.Set("Content-Encoding", tc.encoding)
			}
			body, refusal := ReadBody(httptest.NewRecorder(), r, limits)
			if refusal == nil {
				defer body.Release()
			}
			switch {
			case tc.status == 0 && (refusal != nil || string(body.Bytes) != tc.want):
				t.Errorf("got %q, %v", body.Bytes, refusal)
			case tc.status != 0 && (refusal == nil || refusal.Status != tc.status || !strings.Contains(refusal.Text, tc.want)):
				t.Errorf("got %+v, want %d and %q", refusal, tc.status, tc.want)
			}
		})
	}
}

// TestBuffersDoNotMix reads bodies into buffers that were used before.
func TestBuffersDoNotMix(t *testing.T) {
	for i := range 50 {
		want := strings.Repeat(string(rune('a'+i%26)), 1+i*17%900)
		r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(want))
		r.Header.Set("Content-Type", "application/json")
		body, refusal := ReadBody(httptest.NewRecorder(), r, limits)
		if refusal != nil || string(body.Bytes) != want {
			t.Fatalf("got %q, %v", body.Bytes, refusal)
		}
		body.Release()
	}
}

// TestAnnouncedLengthIsNotBelieved: a length alone must not take memory.
func TestAnnouncedLengthIsNotBelieved(t *testing.T) {
	b, err := readAll(strings.NewReader("{}"), nil, 1<<40, 1<<41)
	if err != nil || string(b) != "{}" || cap(b) > 2<<20 {
		t.Errorf("%d bytes of memory for %q, %v", cap(b), b, err)
	}
}

// exchange serves one request over a connection in memory.
func exchange(t *testing.T, h http.HandlerFunc, send func(io.Writer)) (response string) {
	t.Helper()
	l := testkit.NewMemListener()
	srv := &http.Server{Handler: h}
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(l) }() // ends with srv.Close
	defer func() { _ = srv.Close(); <-served }()
	conn, err := l.Dial(context.Background(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	sent := make(chan struct{})
	go func() { defer close(sent); send(conn) }() // ends with conn
	var out bytes.Buffer
	_, _ = io.Copy(&out, conn)
	_ = conn.Close()
	<-sent
	return out.String()
}

func TestBodyThatDoesNotArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 5 * time.Second
		begin := time.Now()
		got := exchange(t, func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(limit))
			_, refusal := ReadBody(w, r, limits)
			if refusal == nil {
				t.Error("a body that never came was read")
				return
			}
			w.Header().Set("Connection", "close")
			refusal.Write(w)
		}, func(w io.Writer) {
			_, _ = io.WriteString(w, "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{")
		})
		if took := time.Since(begin); !strings.HasPrefix(got, "HTTP/1.1 408 ") || took != limit {
			t.Errorf("after %v: %q", took, got)
		}
	})
}

func TestWriteJSON(t *testing.T) {
	for _, size := range []int{0, 1, 64 << 10, 64<<10 + 1, 300 << 10} {
		body := bytes.Repeat([]byte("x"), size)
		w := &recorder{ResponseRecorder: httptest.NewRecorder()}
		if err := WriteJSON(w, body, limits); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(w.Body.Bytes(), body) || w.Code != 200 || !w.Flushed ||
			w.Header().Get("Content-Type") != "application/json" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%d bytes: %d %v, %d bytes written", size, w.Code, w.Header(), w.Body.Len())
		}
		if writes := max(1, (size+64<<10-1)/(64<<10)); len(w.deadlines) != writes+1 || !w.deadlines[writes].IsZero() {
			t.Errorf("%d bytes: deadlines %v", size, w.deadlines)
		}
	}
}

// recorder notes the deadlines.
type recorder struct {
	*httptest.ResponseRecorder
	deadlines []time.Time
}

func (r *recorder) SetWriteDeadline(t time.Time) error {
	r.deadlines = append(r.deadlines, t)
	return nil
}

// TestWriteThatNobodyReads: a client that does not read holds a goroutine for
// the write time-out and no longer.
func TestWriteThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := testkit.NewMemListener()
		failed := make(chan error, 1)
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			failed <- WriteJSON(w, make([]byte, 300<<10), limits)
		})}
		served := make(chan struct{})
		go func() { defer close(served); _ = srv.Serve(l) }() // ends with srv.Close
		conn, err := l.Dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if err := <-failed; err == nil || time.Since(begin) != limits.WriteTimeout {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		_ = conn.Close()
		_ = srv.Close()
		<-served
	})
}

func TestRefusal(t *testing.T) {
	w := httptest.NewRecorder()
	(&Refusal{Status: 503, Code: -32000, ID: []byte(`"a"`), Text: `full: "x"`, Retry: 5}).Write(w)
	if w.Code != 503 || w.Header().Get("Retry-After") != "5" || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	if got := w.Body.String(); got != `{"jsonrpc":"2.0","id":"a","error":{"code":-32000,"message":"full: \"x\""}}` {
		t.Error(got)
	}
	w = httptest.NewRecorder()
	Refuse(w, 400, -32600, nil, "%d bytes", 5)
	if got := w.Body.String(); w.Code != 400 || w.Header()["Retry-After"] != nil || got != `{"jsonrpc":"2.0","error":{"code":-32600,"message":"5 bytes"}}` {
		t.Errorf("%d %v %s", w.Code, w.Header(), got)
	}
}

// FuzzHeaders: whatever stands in the headers of a request, it is read or
// refused with a message that a client can parse.
func FuzzHeaders(f *testing.F) {
	f.Add("application/json", "application/json, text/event-stream;q=0.5", "gzip")
	f.Add("application/json; charset=\"", "*/*;q=0", "")
	f.Add("", ";;;,,,q=", "\x00")
	f.Fuzz(func(t *testing.T, contentType, accept, encoding string) {
		r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader("{}"))
		r.Header = http.Header{"Content-Type": {contentType}, "Accept": {accept}, "Content-Encoding": {encoding}}
		j, e := Accepts(r)
		r.Header["Accept"] = []string{accept, "application/json"}
		if j2, e2 := Accepts(r); !j2 || e2 != e {
			t.Errorf("Accept %q: json %v, events %v; with one more for JSON: %v, %v", accept, j, e, j2, e2)
		}
		body, refusal := ReadBody(httptest.NewRecorder(), r, limits)
		if refusal == nil {
			if string(body.Bytes) != "{}" || !strings.Contains(strings.ToLower(contentType), "application/json") {
				t.Errorf("Content-Type %q: read %q", contentType, body.Bytes)
			}
			body.Release()
			return
		}
		w := httptest.NewRecorder()
		refusal.Write(w)
		if w.Code != 415 || !json.Valid(w.Body.Bytes()) {
			t.Errorf("refused with %d %q", w.Code, w.Body)
		}
	})
}

// TestPrincipal: the client's port is not part of it, all else that tells
// clients apart is.
func TestPrincipal(t *testing.T) {
	from := func(addr, forwarded, authorization string) string {
		return Principal(&http.Request{RemoteAddr: addr, Header: http.Header{"X-Forwarded-For": {forwarded}, "Authorization": {authorization}}})
	}
	one := from("10.0.0.1:1000", "1.1.1.1", "Bearer a")
	if from("10.0.0.1:2000", "1.1.1.1", "Bearer a") != one {
		t.Error("another connection is another client")
	}
	seen := map[string]bool{one: true}
	for _, other := range []string{from("10.0.0.2:1000", "1.1.1.1", "Bearer a"), from("10.0.0.1:1000", "1.1.1.2", "Bearer a"),
		from("10.0.0.1:1000", "1.1.1.1", "Bearer b"), from("10.0.0.1:1000", "Bearer a", "1.1.1.1"), from("@", "", "")} {
		if seen[other] {
			t.Errorf("%q is of two clients", other)
		}
		seen[other] = true
	}
}
