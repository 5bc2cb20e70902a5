package sse

import (
	"bytes"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// reference is the same decoder written for plainness: all input at once, one
// pass over strings, no limit.
func reference(in string) outcome {
	var o outcome
	var e Event
	var data []string
	in = strings.TrimPrefix(in, "\xef\xbb\xbf")
	in = strings.ReplaceAll(strings.ReplaceAll(in, "\r\n", "\n"), "\r", "\n")
	lines := strings.Split(in, "\n")
	for _, line := range lines[:len(lines)-1] {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if data != nil || e.HasID {
				if joined := strings.Join(data, "\n"); joined != "" {
					e.Data = []byte(joined)
				}
				o.Events = append(o.Events, e)
			}
			if e.HasID {
				o.LastID = e.ID
			}
			e, data = Event{}, nil
		case name == "":
			o.Comments++
		case name == "data":
			data = append(data, value)
		case name == "event":
			e.Name = value
		case name == "id" && !strings.Contains(value, "\x00"):
			e.ID, e.HasID = value, true
		case name == "retry":
			if ms, ok := milliseconds([]byte(value)); ok {
				e.Retry, e.HasRetry = ms, true
				o.Retry, o.HasRetry = ms, true
			}
		}
	}
	return o
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("event: message\r\ndata: a\rdata: b\n\r\nid: 1\n\n:\n\nretry: 5\n\n"), uint8(3))
	f.Add([]byte("\ufeffdata\n\nid\ndata: x\n\n"), uint8(1))
	f.Add([]byte("\ufeff"), uint8(1))
	f.Add([]byte("event:00000000\r\n\r"), uint8(15))
	f.Add([]byte("data: "+strings.Repeat("x", 100)+"\nid: 3\n\ndata: y\n\n"), uint8(20))
	f.Fuzz(func(t *testing.T, in []byte, limit uint8) {
		want := reference(string(in))
		if got := drain(NewDecoder(bytes.NewReader(in), 0)); !reflect.DeepEqual(got, want) {
			t.Errorf("whole:\ngot  %+v\nwant %+v", got, want)
		}
		if got := drain(NewDecoder(iotest.OneByteReader(bytes.NewReader(in)), 0)); !reflect.DeepEqual(got, want) {
			t.Errorf("byte by byte:\ngot  %+v\nwant %+v", got, want)
		}
		// What a small limit does must not depend on how the bytes arrive.
		whole := drain(NewDecoder(bytes.NewReader(in), int(limit)))
		small := drain(NewDecoder(iotest.OneByteReader(bytes.NewReader(in)), int(limit)))
		if !reflect.DeepEqual(whole, small) {
			t.Errorf("limit %d:\nwhole %+v\nbytes %+v", limit, whole, small)
		}
		if limit > 0 {
			for _, e := range whole.Events {
				if len(e.Data) > int(limit) {
					t.Errorf("%d bytes of data with a limit of %d", len(e.Data), limit)
				}
			}
		}
		d := NewDecoder(iotest.HalfReader(bytes.NewReader(in)), int(limit))
		d.DeliverUnterminated = true
		drain(d)
	})
}

func FuzzRoundTrip(f *testing.F) {
	f.Add("message", "s1/7", false, int64(500), true, []byte(`{"jsonrpc":"2.0","id":1}`))
	f.Add("", "", true, int64(-1), false, []byte("a\r\n\rb\n"))
	f.Add("a\nb", "c\x00\r", false, int64(0), true, []byte(nil))
	f.Fuzz(func(t *testing.T, name, id string, hasID bool, ms int64, hasRetry bool, data []byte) {
		in := Event{Name: name, ID: id, HasID: hasID, Retry: time.Duration(ms), HasRetry: hasRetry, Data: data}
		stream := AppendComment(nil, name)
		stream = AppendRetry(stream, time.Duration(ms))
		stream = AppendEvent(stream, in)
		stream = AppendEvent(stream, Event{Data: []byte("next")})

		strip := strings.NewReplacer("\r", "", "\n", "", "\x00", "")
		want := in
		want.Name, want.ID = strip.Replace(name), strip.Replace(id)
		want.HasID = hasID || id != ""
		want.HasRetry = hasRetry || ms > 0
		if want.Retry = max(0, in.Retry.Truncate(time.Millisecond)); !want.HasRetry {
			want.Retry = 0
		}
		want.Data = bytes.ReplaceAll(bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\n"))

		d := NewDecoder(iotest.HalfReader(bytes.NewReader(stream)), 0)
		got, err := d.Next()
		if err != nil || !bytes.Equal(got.Data, want.Data) {
			t.Fatalf("data %q, %v; want %q", got.Data, err, want.Data)
		}
		got.Data, want.Data = nil, nil
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
		if got, err = d.Next(); err != nil || string(got.Data) != "next" || got.HasID {
			t.Errorf("the next event is %+v, %v", got, err)
		}
		if _, err = d.Next(); err != io.EOF {
			t.Errorf("behind it: %v", err)
		}
	})
}
