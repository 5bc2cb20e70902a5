// Package sse encodes and decodes text/event-stream.
//
// The rules are those of the HTML standard, section 9.2 "Server-sent events",
// except where a contract here says otherwise.
package sse

import (
	"bytes"
	"slices"
	"strconv"
	"time"
)

// Event is one event of a stream.
type Event struct {
	// Name is the event field as sent. Empty means "message"; see Type.
	Name string
	// ID is the id field of this very event, not the inherited last id.
	ID string
	// HasID tells an empty id from none. When encoding, a non-empty ID
	// implies it.
	HasID bool
	// Retry is the reconnection time, in whole milliseconds on the wire.
	Retry time.Duration
	// HasRetry tells a zero Retry from none. When encoding, a positive Retry
	// implies it.
	HasRetry bool
	// Data is the payload. Its line ends are LF after decoding.
	Data []byte
}

// Type is the event's type by the standard: Name, or "message" where the
// stream named none.
func (e Event) Type() string {
	if e.Name == "" {
		return defaultType
	}
	return e.Name
}

const defaultType = "message"

// AppendEvent appends e as one block, fields in the order id, event, retry,
// data, and returns the extended slice.
//
// There is always a data field, so even an event without data is one that a
// decoder yields (a priming event is AppendEvent with an ID alone). Data is
// split into one data field per line at CR, LF and CRLF, each of which a
// decoder gives back as LF. CR, LF and NUL in Name and ID, which no field can
// hold, are left out. A negative Retry is written as 0.
func AppendEvent(dst []byte, e Event) []byte {
	// Room for everything but further data lines, so that dst grows once.
	const fixed = len("id: \nevent: \nretry: 9223372036854\ndata: \n\n")
	dst = slices.Grow(dst, fixed+len(e.ID)+len(e.Name)+len(e.Data))
	if e.HasID || e.ID != "" {
		dst = appendField(dst, "id: ", e.ID)
	}
	if e.Name != "" {
		dst = appendField(dst, "event: ", e.Name)
	}
	if e.HasRetry || e.Retry > 0 {
		dst = appendRetryField(dst, e.Retry)
	}
	dst = appendLines(dst, "data: ", e.Data)
	return append(dst, '\n')
}

// AppendComment appends a block of comment lines only, one for each line of
// text, and returns the extended slice. With an empty text that is ":\n\n",
// the shortest sign of life a stream can carry.
func AppendComment(dst []byte, text string) []byte {
	if text == "" {
		return append(dst, ":\n\n"...)
	}
	dst = appendLines(dst, ": ", []byte(text))
	return append(dst, '\n')
}

// AppendRetry appends a block of only a retry field and returns the extended
// slice. It sets a client's reconnection time and dispatches no event. A
// negative d is written as 0; fractions of a millisecond are cut off.
func AppendRetry(dst []byte, d time.Duration) []byte {
	dst = appendRetryField(dst, d)
	return append(dst, '\n')
}

func appendRetryField(dst []byte, d time.Duration) []byte {
	dst = append(dst, "retry: "...)
	dst = strconv.AppendInt(dst, max(0, d.Milliseconds()), 10)
	return append(dst, '\n')
}

func appendField(dst []byte, prefix, value string) []byte {
	dst = append(dst, prefix...)
	clean := 0
	for i := range len(value) {
		if c := value[i]; c == '\r' || c == '\n' || c == 0 {
			dst = append(dst, value[clean:i]...)
			clean = i + 1
		}
	}
	dst = append(dst, value[clean:]...)
	return append(dst, '\n')
}

func appendLines(dst []byte, prefix string, text []byte) []byte {
	for {
		dst = append(dst, prefix...)
		i := indexEOL(text)
		if i < 0 {
			dst = append(dst, text...)
			return append(dst, '\n')
		}
		dst = append(dst, text[:i]...)
		dst = append(dst, '\n')
		if text[i] == '\r' && i+1 < len(text) && text[i+1] == '\n' {
			i++
		}
		text = text[i+1:]
	}
}

// scanStep bounds how far past a line end of one kind the search for the
// other kind looks, which keeps short lines from costing a scan of all that
// follows them.
const scanStep = 4 << 10

// indexEOL returns the index of the first CR or LF in b, or -1. Two vectorised
// searches over each step are several times as fast as one loop over bytes.
func indexEOL(b []byte) int {
	for at := 0; at < len(b); at += scanStep {
		step := b[at:min(at+scanStep, len(b))]
		lf := bytes.IndexByte(step, '\n')
		if lf >= 0 {
			step = step[:lf]
		}
		if cr := bytes.IndexByte(step, '\r'); cr >= 0 {
			return at + cr
		}
		if lf >= 0 {
			return at + lf
		}
	}
	return -1
}
