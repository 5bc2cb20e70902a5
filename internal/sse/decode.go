package sse

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"time"
)

// ErrTooLong means that an event was larger than the decoder's limit.
var ErrTooLong = errors.New("sse: event exceeds the limit")

// DefaultLimit is the largest event, in bytes, for a decoder that is given no
// limit of its own.
const DefaultLimit = 16 << 20

const (
	firstBuffer   = 4 << 10   // bytes; enough for nearly every message
	keptBuffer    = 256 << 10 // bytes; a larger buffer is given up after its event
	maxEmptyReads = 100       // reads without bytes and without error in a row
	maxInterned   = 64        // bytes; longer names are not remembered
)

var byteOrderMark = []byte("\xef\xbb\xbf")

// Decoder reads events from a stream. It is not safe for concurrent use.
type Decoder struct {
	// DeliverUnterminated asks for an event that has data but whose closing
	// blank line is missing when the stream ends; the standard discards it.
	// Its data may be cut short, so its id does not count for LastID: a
	// caller that accepts the event takes Event.ID.
	DeliverUnterminated bool

	r     io.Reader
	limit int
	err   error // what the reader ended with: io.EOF or a wrapped error

	// buf[start:end] is what was read of the event under construction and
	// past it. The lines before pos are parsed, the last of them ends at eol;
	// of the line at pos the bytes up to scan hold no line end.
	buf                         []byte
	start, eol, pos, scan, end  int
	begun, skipLF, headlessLine bool // byte order mark looked for; last line end was CR; this line was dropped up to pos

	// The event under construction. Further data lines are moved up to the
	// first one inside buf, so data is always one piece: buf[dataAt:dataEnd].
	ev              Event
	hasField        bool
	hasData         bool
	dataAt, dataEnd int
	skipping        bool // the event is too long; only its other fields count
	head            []byte

	lastID   string
	lastName string
	retry    time.Duration
	hasRetry bool
	comments int
}

// NewDecoder returns a decoder of the stream r. The limit is the size of one
// event in bytes, with its field names, its line ends and the comments among
// its lines, but without the closing blank line; 0 or less means DefaultLimit.
// The buffer grows with the largest event and not beyond the limit.
func NewDecoder(r io.Reader, limit int) *Decoder {
	if limit <= 0 {
		limit = DefaultLimit
	}
	return &Decoder{r: r, limit: min(limit, math.MaxInt-firstBuffer)}
}

// LastID returns the last event id of the stream, which is what a client sends
// as Last-Event-ID. An event without an id leaves it, an empty id clears it,
// and it changes only when its event is complete (HTML 9.2.6).
func (d *Decoder) LastID() string { return d.lastID }

// Retry returns the reconnection time that the stream asked for last, and
// whether it did. The line itself sets it, whether or not an event follows.
func (d *Decoder) Retry() (time.Duration, bool) { return d.retry, d.hasRetry }

// Comments returns the number of comment lines read.
func (d *Decoder) Comments() int { return d.comments }

// Next returns the next event. Its Data is valid until the next call; bytes
// that are not UTF-8 are left as they are.
//
// An event with an id but without data is returned as well, with empty Data,
// because its id is news; the standard dispatches nothing for it. Blocks of
// only comments, a retry field or a name are not returned.
//
// The error is io.EOF at the end of the stream; ErrTooLong for an event over
// the limit, and the call after that goes on behind it; else it wraps what the
// reader failed with.
func (d *Decoder) Next() (Event, error) {
	d.release()
	for {
		line, err := d.line()
		if err != nil {
			return d.finish(line, err)
		}
		if len(line) == 0 {
			if ev, ok := d.dispatch(); ok {
				return ev, nil
			}
			continue
		}
		tooLong := !d.skipping && d.pos-d.start > d.limit
		if tooLong {
			d.skip()
		}
		d.field(line)
		if tooLong {
			return Event{}, ErrTooLong
		}
	}
}

// dispatch ends the event under construction and reports whether it is one to
// return.
func (d *Decoder) dispatch() (Event, bool) {
	ev, ok := d.event(), (d.hasData || d.ev.HasID) && !d.skipping
	if ev.HasID {
		d.lastID = ev.ID
	}
	d.reset()
	return ev, ok
}

func (d *Decoder) event() Event {
	ev := d.ev
	if d.hasData {
		ev.Data = d.buf[d.dataAt:d.dataEnd:d.dataEnd]
	}
	return ev
}

func (d *Decoder) reset() {
	d.ev = Event{}
	d.hasField, d.hasData, d.skipping = false, false, false
	d.start = d.pos
}

func (d *Decoder) skip() {
	d.head = d.beginning()
	d.skipping, d.hasData = true, false
}

// headBytes is how much is kept of the data of an event that is too long.
const headBytes = 4 << 10

// beginning returns a copy of the beginning of the data of the event under
// construction, which need not be parsed.
func (d *Decoder) beginning() []byte {
	var data []byte
	if d.hasData {
		data = d.buf[d.dataAt:d.dataEnd]
	} else {
		data = d.buf[d.start:d.end]
		for !bytes.HasPrefix(data, []byte("data:")) {
			next := indexEOL(data)
			if next < 0 {
				return nil
			}
			data = data[next+1:]
		}
		data = bytes.TrimPrefix(data[len("data:"):], []byte{' '})
	}
	return bytes.Clone(data[:min(len(data), headBytes)])
}

// Head returns up to 4 KiB of the data of the event that ErrTooLong told of
// last, nil if it had none in what was read of it.
func (d *Decoder) Head() []byte { return d.head }

// finish handles what line could not go on from; rest is what there is of a
// last line without an end.
func (d *Decoder) finish(rest []byte, err error) (Event, error) {
	if err == ErrTooLong {
		d.skip()
		return Event{}, err
	}
	if d.DeliverUnterminated && !d.skipping {
		// A cut field of any other name is wrong rather than incomplete.
		if bytes.HasPrefix(rest, []byte("data:")) {
			d.field(rest)
		}
		if ev := d.event(); len(ev.Data) > 0 {
			d.reset()
			return ev, nil
		}
	}
	d.reset()
	return Event{}, err
}

// field parses a line that is not blank and ends at eol (HTML 9.2.6).
func (d *Decoder) field(line []byte) {
	name, value, _ := bytes.Cut(line, []byte{':'})
	if len(value) > 0 && value[0] == ' ' {
		value = value[1:]
	}
	switch {
	case d.skipping && len(line) > d.limit:
		// Dropped, as it is when it does not arrive in one piece.
	case len(name) == 0:
		d.comments++
	default:
		d.set(name, value)
	}
	if !d.hasField || d.skipping {
		d.start = d.pos // nothing of it is needed any more
	}
}

func (d *Decoder) set(name, value []byte) {
	switch string(name) {
	case "data":
		d.addData(value)
	case "event":
		d.ev.Name = d.intern(value)
	case "id":
		if bytes.IndexByte(value, 0) < 0 {
			d.ev.ID, d.ev.HasID = string(value), true
		}
	case "retry":
		if after, ok := milliseconds(value); ok {
			d.retry, d.hasRetry = after, true
			d.ev.Retry, d.ev.HasRetry = after, true
		}
	default:
		return
	}
	d.hasField = true
}

// addData adds the value of a data line, which lies in buf just before eol.
func (d *Decoder) addData(value []byte) {
	switch {
	case d.skipping:
	case !d.hasData:
		d.hasData = true
		d.dataAt, d.dataEnd = d.eol-len(value), d.eol
	default:
		// There is room: at least a line end and "data" lie in between.
		d.buf[d.dataEnd] = '\n'
		d.dataEnd += 1 + copy(d.buf[d.dataEnd+1:], value)
	}
}

// intern returns value as a string without a new one for each event.
func (d *Decoder) intern(value []byte) string {
	switch {
	case string(value) == defaultType:
		return defaultType
	case string(value) == d.lastName:
		return d.lastName
	case len(value) > maxInterned:
		return string(value)
	}
	d.lastName = string(value)
	return d.lastName
}

// milliseconds parses a retry value: ASCII digits only. What no Duration can
// hold becomes the longest one.
func milliseconds(value []byte) (time.Duration, bool) {
	const most = math.MaxInt64 / int64(time.Millisecond)
	var ms int64
	for _, c := range value {
		if c < '0' || c > '9' {
			return 0, false
		}
		ms = min(ms*10+int64(c-'0'), most)
	}
	return time.Duration(ms) * time.Millisecond, len(value) > 0
}

// line returns the next line without its end. With an error it returns what
// there is of a last line that has none.
func (d *Decoder) line() ([]byte, error) {
	for {
		if d.lead() {
			if i := indexEOL(d.buf[d.scan:d.end]); i >= 0 {
				if line, ok := d.cut(d.scan + i); ok {
					return line, nil
				}
				continue
			}
			d.scan = d.end
		}
		if err := d.fill(); err != nil {
			if err == ErrTooLong {
				return nil, err
			}
			if !d.begun {
				d.begun = true // a cut mark is a line like any other
				continue
			}
			rest := d.buf[d.pos:d.end]
			d.eol, d.pos, d.scan = d.end, d.end, d.end
			return rest, err
		}
	}
}

// cut takes the line that ends at eol, unless its head was dropped.
func (d *Decoder) cut(eol int) (line []byte, ok bool) {
	line, ok = d.buf[d.pos:eol], !d.headlessLine
	d.headlessLine = false
	// A LF after this CR may be yet to come; waiting for it here would hold
	// the event back until the next one.
	d.skipLF = d.buf[eol] == '\r'
	d.eol, d.pos, d.scan = eol, eol+1, eol+1
	return line, ok
}

// lead drops what may stand before a line: the byte order mark of the stream,
// the LF of a CRLF. It reports false if more bytes must be read to tell.
func (d *Decoder) lead() bool {
	ahead := d.buf[d.pos:d.end]
	if !d.begun {
		if len(ahead) < len(byteOrderMark) && bytes.HasPrefix(byteOrderMark, ahead) {
			return false
		}
		d.begun = true
		if bytes.HasPrefix(ahead, byteOrderMark) {
			d.pos += len(byteOrderMark)
			d.start, d.scan = d.pos, d.pos
		}
	}
	if d.skipLF && len(ahead) > 0 {
		d.skipLF = false
		if ahead[0] == '\n' {
			d.pos++
			d.scan = max(d.scan, d.pos)
		}
	}
	return true
}

// fill reads more bytes behind a line that is not complete yet.
func (d *Decoder) fill() error {
	if d.skipping {
		if d.end-d.pos > d.limit || d.headlessLine {
			d.headlessLine = true
			d.pos, d.scan = d.end, d.end
		}
		d.start = d.pos
	} else if d.begun && d.end > d.pos && d.end-d.start > d.limit {
		// What may be a byte order mark is part of no event, and the lines before
		// pos were measured when they ended.
		return ErrTooLong
	}
	if d.err != nil {
		return d.err
	}
	d.makeRoom()
	for range maxEmptyReads {
		n, err := d.r.Read(d.buf[d.end:])
		d.end += n
		if err != nil {
			d.err = readError(err)
		}
		if n > 0 {
			return nil
		}
		if d.err != nil {
			return d.err
		}
	}
	d.err = readError(io.ErrNoProgress)
	return d.err
}

func readError(err error) error {
	if err == io.EOF {
		return err
	}
	return fmt.Errorf("sse: read: %w", err)
}

// makeRoom sees to it that buf has free bytes behind end.
func (d *Decoder) makeRoom() {
	switch {
	case d.start == d.end:
		d.move(d.buf)
	case d.end < len(d.buf):
	case d.start > 0:
		d.move(d.buf)
	}
	if d.end == len(d.buf) {
		d.move(make([]byte, min(max(firstBuffer, 2*len(d.buf)), d.limit+firstBuffer)))
	}
}

// release gives a large buffer up when little of it is in use.
func (d *Decoder) release() {
	if len(d.buf) > keptBuffer && d.end-d.start < keptBuffer/2 {
		d.move(make([]byte, max(firstBuffer, d.end-d.start)))
	}
}

// move copies what is in use of buf to the front of to, which becomes buf.
func (d *Decoder) move(to []byte) {
	copy(to, d.buf[d.start:d.end])
	d.buf = to
	d.eol -= d.start
	d.pos -= d.start
	d.scan -= d.start
	d.end -= d.start
	d.dataAt -= d.start
	d.dataEnd -= d.start
	d.start = 0
}
