package sse

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// outcome is all there is to see of a stream that was read to its end.
type outcome struct {
	Events   []Event
	TooLong  int
	LastID   string
	Retry    time.Duration
	HasRetry bool
	Comments int
	Err      error
}

func drain(d *Decoder) outcome {
	var o outcome
	for {
		e, err := d.Next()
		switch {
		case errors.Is(err, ErrTooLong):
			o.TooLong++
			continue
		case err != nil:
			if err != io.EOF {
				o.Err = err
			}
			o.LastID, o.Comments = d.LastID(), d.Comments()
			o.Retry, o.HasRetry = d.Retry()
			return o
		}
		e.Data = bytes.Clone(e.Data)
		if len(e.Data) == 0 {
			e.Data = nil
		}
		o.Events = append(o.Events, e)
	}
}

// pieces hands out one piece for each Read.
type pieces [][]byte

func (p *pieces) Read(b []byte) (int, error) {
	if len(*p) == 0 {
		return 0, io.EOF
	}
	n := copy(b, (*p)[0])
	if (*p)[0] = (*p)[0][n:]; len((*p)[0]) == 0 {
		*p = (*p)[1:]
	}
	return n, nil
}

// everySplit calls try with the input whole, byte by byte, with its last bytes
// and the end in one read, and cut in two at every place.
func everySplit(t *testing.T, in string, try func(how string, r io.Reader)) {
	t.Helper()
	try("whole", strings.NewReader(in))
	try("byte by byte", iotest.OneByteReader(strings.NewReader(in)))
	try("data with EOF", iotest.DataErrReader(strings.NewReader(in)))
	for i := 1; i < len(in); i++ {
		try("cut behind "+in[:i], &pieces{[]byte(in[:i]), []byte(in[i:])})
	}
}

func check(t *testing.T, in string, want outcome) {
	t.Helper()
	everySplit(t, in, func(how string, r io.Reader) {
		t.Helper()
		if got := drain(NewDecoder(r, 0)); !reflect.DeepEqual(got, want) {
			t.Fatalf("%q, %q:\ngot  %+v\nwant %+v", in, how, got, want)
		}
	})
}

func TestC21LineEnds(t *testing.T) {
	const lf = "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\ndata: \"result\":{}}\n\n"
	want := outcome{Events: []Event{{
		Name: "message", Data: []byte("{\"jsonrpc\":\"2.0\",\"id\":1,\n\"result\":{}}"),
	}}}
	inputs := map[string]string{
		"LF":                lf,
		"CRLF":              strings.ReplaceAll(lf, "\n", "\r\n"),
		"CR":                strings.ReplaceAll(lf, "\n", "\r"),
		"CRLF, then LF":     strings.Replace(lf, "\n", "\r\n", 1),
		"LF, then CRLF":     strings.TrimSuffix(lf, "\n\n") + "\r\n\r\n",
		"CR, then LF":       strings.Replace(lf, "\n", "\r", 1),
		"LF, CR, CRLF":      strings.TrimSuffix(lf, "\n\n") + "\r\r\n",
		"byte order mark":   "\ufeff" + lf,
		"more blank lines":  "\r\n\r\n" + lf + "\r\r\n\n",
		"no space":          strings.ReplaceAll(lf, ": ", ":"),
		"unfinished second": lf + "data: {}\n",
	}
	for name, in := range inputs {
		t.Run(name, func(t *testing.T) { check(t, in, want) })
	}
}

func TestC21LoneCRIsNotHeldBack(t *testing.T) {
	// The end of the event is known at its second CR. A decoder that waits to
	// see whether a LF follows would read on, and that read fails here.
	in := io.MultiReader(strings.NewReader("data: a\r\r"), iotest.ErrReader(errors.New("read too far")))
	e, err := NewDecoder(in, 0).Next()
	if err != nil || string(e.Data) != "a" {
		t.Errorf("got %q, %v", e.Data, err)
	}
}

func TestC21UnterminatedEvent(t *testing.T) {
	tests := []struct {
		in, lastID string
		want       []Event
	}{
		{"id: 1\ndata: a\n\nid: 2\ndata: {}", "1", []Event{{ID: "1", HasID: true, Data: []byte("a")}, {ID: "2", HasID: true, Data: []byte("{}")}}},
		{"data: a\ndata: b", "", []Event{{Data: []byte("a\nb")}}},
		{"data: a\r", "", []Event{{Data: []byte("a")}}},
		{"event: x\r\ndata: a\r\n", "", []Event{{Name: "x", Data: []byte("a")}}},
		{"data: a\nid: 1", "", []Event{{Data: []byte("a")}}}, // may be the half of id: 17
		{"data: a\n\n", "", []Event{{Data: []byte("a")}}},
		{"id: 1\n", "", nil},
		{"data: \n", "", nil},
		{"data", "", nil},
		{"", "", nil},
	}
	for _, tt := range tests {
		everySplit(t, tt.in, func(how string, r io.Reader) {
			d := NewDecoder(r, 0)
			d.DeliverUnterminated = true
			got, want := drain(d), outcome{Events: tt.want, LastID: tt.lastID}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%q, %q:\ngot  %+v\nwant %+v", tt.in, how, got, want)
			}
		})
	}
}

func TestC22PrimingEvent(t *testing.T) {
	result := Event{ID: "2", HasID: true, Data: []byte("{}")}
	primed := func(e Event) outcome {
		e.ID, e.HasID = "1", true
		return outcome{Events: []Event{e, result}, LastID: "2", Retry: e.Retry, HasRetry: e.HasRetry}
	}
	tests := map[string]outcome{
		"id: 1\nretry: 500\ndata: \n\n": primed(Event{Retry: 500 * time.Millisecond, HasRetry: true}),
		"id: 1\ndata:\n\n":              primed(Event{}),
		"id: 1\ndata\n\n":               primed(Event{}),
		"id: 1\n\n":                     primed(Event{}),
		"id:1\r\n\r\n":                  primed(Event{}),
		"id: 1\nevent: message\n\n":     primed(Event{Name: "message"}),
		"retry: 500\n\n": {Events: []Event{result}, LastID: "2",
			Retry: 500 * time.Millisecond, HasRetry: true},
	}
	for in, want := range tests {
		t.Run(in, func(t *testing.T) { check(t, in+"id: 2\ndata: {}\n\n", want) })
	}
}

func TestC22LastIDBeforeTheNextEvent(t *testing.T) {
	d := NewDecoder(strings.NewReader("id: 1\ndata: \n\ndata: x\n\nid\ndata: y\n\nid: 3\ndata: z\n"), 0)
	for i, want := range []string{"1", "1", "", ""} {
		_, err := d.Next()
		if d.LastID() != want {
			t.Errorf("after event %d: last id %q, want %q", i, d.LastID(), want)
		}
		if (err != nil) != (i == 3) {
			t.Errorf("event %d: %v", i, err)
		}
	}
}

func TestC23EventWithoutName(t *testing.T) {
	for _, in := range []string{
		"data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n",
		"event:\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n",
		"event\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n",
		"event: other\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n", // a name does not outlive its block
	} {
		want := Event{Data: []byte(`{"jsonrpc":"2.0","id":1,"result":{}}`)}
		check(t, in, outcome{Events: []Event{want}})
		if want.Type() != "message" {
			t.Errorf("type %q", want.Type())
		}
	}
	if got := (Event{Name: "endpoint"}).Type(); got != "endpoint" {
		t.Errorf("type %q, want the name", got)
	}
}

func TestC24CommentsAndForeignEvents(t *testing.T) {
	const in = ": keep-alive\n\n" +
		"event: ping\ndata: 2025-10-31\n\n" +
		"data: {\"type\":\"heartbeat\"}\n\n" +
		"event: reconnect\n\n" +
		"a line without colon\n" +
		"unknown: field\n" +
		"Data: a field name in the wrong case\n" +
		"data : a field name that ends in a space\n" +
		":\n:no space\n" +
		"data: {}\n" +
		": in the middle\n" +
		"\n"
	want := outcome{Comments: 4, Events: []Event{
		{Name: "ping", Data: []byte("2025-10-31")},
		{Data: []byte(`{"type":"heartbeat"}`)},
		{Data: []byte("{}")},
	}}
	check(t, in, want)
	check(t, strings.ReplaceAll(in, "\n", "\r\n"), want)
}

func TestFields(t *testing.T) {
	tests := map[string]outcome{
		"id: a\x00b\ndata: x\n\n":         {Events: []Event{{Data: []byte("x")}}},
		"id: a\nid: b\ndata: x\n\n":       {LastID: "b", Events: []Event{{ID: "b", HasID: true, Data: []byte("x")}}},
		"id: a\nid: b\x00\ndata: x\n\n":   {LastID: "a", Events: []Event{{ID: "a", HasID: true, Data: []byte("x")}}},
		"event: a\nevent: b\ndata: x\n\n": {Events: []Event{{Name: "b", Data: []byte("x")}}},
		"data:  two spaces\n\n":           {Events: []Event{{Data: []byte(" two spaces")}}},
		"data\ndata\n\n":                  {Events: []Event{{Data: []byte("\n")}}},
		"data: a:b: c\n\n":                {Events: []Event{{Data: []byte("a:b: c")}}},
		"data: \xff\xfe\n\n":              {Events: []Event{{Data: []byte("\xff\xfe")}}},
		"retry: 12x\n\n":                  {},
		"retry: -1\n\n":                   {},
		"retry\n\nretry:\n\n":             {},
		"retry: 5\n\nretry: x\n\n":        {Retry: 5 * time.Millisecond, HasRetry: true},
		"retry: 007\n\n":                  {Retry: 7 * time.Millisecond, HasRetry: true},
		"retry: 99999999999999999999\n":   {Retry: 9223372036854 * time.Millisecond, HasRetry: true},
		"\ufeff\ufeffdata: x\n\n":         {}, // only one mark is taken off, the field is unknown
		"data: x\n\n\ufeffdata: y\n\n":    {Events: []Event{{Data: []byte("x")}}},
		"\xef\xbbdata: x\n\n":             {},
		"\xef\xbb":                        {},
	}
	for in, want := range tests {
		t.Run(in, func(t *testing.T) { check(t, in, want) })
	}
}

func TestTooLong(t *testing.T) {
	const limit = 20
	fits := Event{Data: []byte(strings.Repeat("x", limit-len("data: \n")))}
	exact := string(AppendEvent(nil, fits))
	over := strings.Replace(exact, "x", "xx", 1)
	tests := []struct {
		name, in string
		want     outcome
	}{
		{"exactly the limit", exact, outcome{Events: []Event{fits}}},
		{"one byte over", over + exact, outcome{TooLong: 1, Events: []Event{fits}}},
		{"twice over", over + over + exact, outcome{TooLong: 2, Events: []Event{fits}}},
		{"far over", "data: " + strings.Repeat("x", 10*limit) + "\n\n" + exact,
			outcome{TooLong: 1, Events: []Event{fits}}},
		{"many lines", strings.Repeat("data: x\n", limit) + "\n" + exact,
			outcome{TooLong: 1, Events: []Event{fits}}},
		{"id before the data", "id: 1\n" + over + exact,
			outcome{TooLong: 1, LastID: "1", Events: []Event{fits}}},
		{"id after the data", strings.TrimSuffix(over, "\n") + "id: 1\n\n" + exact,
			outcome{TooLong: 1, LastID: "1", Events: []Event{fits}}},
		{"the id itself", "id: " + strings.Repeat("1", limit+1) + "\n\n" + exact,
			outcome{TooLong: 1, Events: []Event{fits}}},
		{"comments between events do not count", strings.Repeat(": ping\n", limit) + exact,
			outcome{Comments: limit, Events: []Event{fits}}},
		{"a comment over the limit", ":" + strings.Repeat("x", 2*limit) + "\n\n" + exact,
			outcome{TooLong: 1, Events: []Event{fits}}},
		{"without an end", over[:len(over)-1], outcome{TooLong: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			everySplit(t, tt.in, func(how string, r io.Reader) {
				if got := drain(NewDecoder(r, limit)); !reflect.DeepEqual(got, tt.want) {
					t.Errorf("%q:\ngot  %+v\nwant %+v", how, got, tt.want)
				}
			})
		})
	}
}

// endless is a stream whose one event has no end.
type endless struct{ n int }

func (e *endless) Read(b []byte) (int, error) {
	if e.n++; e.n > 4096 {
		return 0, io.EOF
	}
	for i := range b {
		b[i] = 'x'
	}
	return len(b), nil
}

func TestMemoryStaysWithinTheLimit(t *testing.T) {
	const limit = 64 << 10
	d := NewDecoder(io.MultiReader(strings.NewReader("data: "), &endless{}), limit)
	if got := drain(d); got.TooLong != 1 || len(got.Events) != 0 {
		t.Errorf("got %+v", got)
	}
	if len(d.buf) > limit+firstBuffer {
		t.Errorf("buffer of %d bytes with a limit of %d", len(d.buf), limit)
	}
}

func TestLargeLine(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789abcdef"), 12<<16) // 12 MiB
	stream := AppendEvent(nil, Event{ID: "1", Name: "message", Data: big})
	stream = AppendEvent(stream, Event{Data: []byte("small")})
	d := NewDecoder(bytes.NewReader(stream), 0)
	e, err := d.Next()
	if err != nil || !bytes.Equal(e.Data, big) || e.ID != "1" {
		t.Fatalf("big event: %d bytes, id %q, %v", len(e.Data), e.ID, err)
	}
	if e, err = d.Next(); err != nil || string(e.Data) != "small" {
		t.Fatalf("the event after it: %q, %v", e.Data, err)
	}
	if len(d.buf) > keptBuffer {
		t.Errorf("%d bytes of buffer kept after a big event", len(d.buf))
	}
	if _, err = d.Next(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

// lazy reads nothing, again and again.
type lazy struct{}

func (lazy) Read([]byte) (int, error) { return 0, nil }

func TestReadErrors(t *testing.T) {
	broken := errors.New("broken")
	tests := []struct {
		name string
		r    io.Reader
		want error
	}{
		{"failure", iotest.ErrReader(broken), broken},
		{"no progress", lazy{}, io.ErrNoProgress},
		{"the limit of another decoder", iotest.ErrReader(ErrTooLong), ErrTooLong},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := NewDecoder(io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), tt.r), 0)
			if e, err := d.Next(); err != nil || string(e.Data) != "a" {
				t.Fatalf("first event %q, %v", e.Data, err)
			}
			for range 2 {
				if _, err := d.Next(); !errors.Is(err, tt.want) || err == tt.want {
					t.Errorf("got %v, want it to wrap %v", err, tt.want)
				}
			}
		})
	}
}

func TestDecoderAllocatesOnlyIDs(t *testing.T) {
	one := AppendEvent(nil, Event{ID: "stream-1/42", Name: "message", Data: []byte(`{"jsonrpc":"2.0"}`)})
	d := NewDecoder(&loop{block: one}, 0)
	if _, err := d.Next(); err != nil {
		t.Fatal(err)
	}
	n := testing.AllocsPerRun(1000, func() {
		if _, err := d.Next(); err != nil {
			t.Fatal(err)
		}
	})
	if n > 1 {
		t.Errorf("%v allocations an event, want one for its id", n)
	}
}
