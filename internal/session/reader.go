package session

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-mcp/holdfast/eventlog"
)

// Output is one connection that a reader writes to. Only the reader's
// goroutine calls it, but for Wake.
type Output interface {
	// Write writes all of p before a deadline of its own.
	Write(p []byte) error
	// Wait returns nil after Wake or at the time, and an error once the
	// connection is gone.
	Wait(until time.Time) error
	// Wake makes a Wait under way, or else the next one, return. It does not
	// block, and may be called from any goroutine.
	Wake()
}

// Encoder puts events into the form that the transport has.
type Encoder interface {
	// Event appends one message. id names its position; it is empty where the
	// message has none, as with one that tells of a loss.
	Event(dst []byte, st *Stream, e eventlog.Event) []byte
	// Heartbeat appends what keeps a quiet connection open; nothing if the
	// transport has no such thing.
	Heartbeat(dst []byte) []byte
}

// Pace says when a quiet stream needs a comment, and when it is better closed, as
// far as is known at a time.
type Pace interface {
	// Beat returns how long the stream may be quiet.
	Beat(now time.Time) time.Duration
	// RotateAt returns when the gateway is to end the stream, since something on
	// the way would soon after; zero: never.
	RotateAt(now time.Time) time.Time
}

// Every is the Pace of a comment after each such time, and no rotation.
type Every time.Duration

// Beat implements Pace.
func (e Every) Beat(time.Time) time.Duration { return time.Duration(e) }

// RotateAt implements Pace.
func (Every) RotateAt(time.Time) time.Time { return time.Time{} }

// Reader delivers one stream to one output.
type Reader struct {
	st  *Stream
	out Output
	pos eventlog.Seq

	cause error // why it must stop; guarded by the session's mu
}

// Read attaches a reader that begins after pos; it takes the stream over from
// the one before. A fresh reader of the general stream begins where delivery
// stopped, whatever pos, and the one before it waits for its turn.
func (st *Stream) Read(out Output, pos eventlog.Seq, fresh bool) (*Reader, error) {
	r, err := st.attach(out, pos, fresh)
	if err == nil {
		if pos > 0 && !fresh { // it names what arrived
			st.delivered(pos)
		}
		st.readChanged()
	}
	return r, err
}

func (st *Stream) attach(out Output, pos eventlog.Seq, fresh bool) (*Reader, error) {
	r := &Reader{st: st, out: out, pos: pos}
	s := st.sess
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil && !st.posting { // a POST still gets the errors that its calls ended with
		return nil, s.ended
	}
	s.heardLocked()
	s.readers++
	before := st.reader
	st.reader = r
	if fresh && st == &s.general {
		r.pos = st.log.DeliveredTo()
		if before != nil {
			s.parked = append(s.parked, before)
			before.out.Wake() // to let go of its turn
		}
		if len(s.parked) >= s.limits.Open {
			s.parked[0].stopLocked(ErrSuperseded)
			s.parked = slices.Delete(s.parked, 0, 1)
		}
		return r, nil
	}
	if before != nil {
		before.stopLocked(ErrSuperseded)
	}
	st.turn = r // at once: what is written twice is what the client asked for again
	return r, nil
}

// Pos returns the position from which the reader begins.
func (r *Reader) Pos() eventlog.Seq { return r.pos }

// detach removes the reader; the newest one that waits takes its turn.
func (r *Reader) detach() {
	r.release()
	r.st.readChanged()
}

func (r *Reader) release() {
	s := r.st.sess
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readers--
	s.touch()
	if i := slices.Index(s.parked, r); i >= 0 {
		s.parked = slices.Delete(s.parked, i, i+1)
	}
	if r.st.turn == r {
		r.st.turn = nil
	}
	if r.st.reader == r {
		r.st.reader = nil
		if n := len(s.parked); n > 0 && r.st == &s.general {
			r.st.reader, s.parked = s.parked[n-1], s.parked[:n-1]
		}
	}
	switch {
	case r.st.reader != nil:
		r.st.reader.out.Wake()
	case s.ended != nil:
		r.st.log.Release()
	}
}

// stopLocked makes Run return the cause.
func (r *Reader) stopLocked(cause error) {
	if r.cause == nil {
		r.cause = cause
	}
	r.out.Wake()
}

// state says whether the reader is the one to deliver. Of several readers of
// the general stream one has the turn. It passes it on between two writes, so
// that no message goes to two connections (2025-11-25 basic/transports,
// "Multiple Connections"): to the next one, which goes on where it stopped.
func (r *Reader) state() (turn bool, cause error) {
	st := r.st
	s := st.sess
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case st.turn == r && st.reader != r:
		st.turn = nil
		if st.reader != nil {
			st.reader.out.Wake()
		}
	case st.turn == nil && st.reader == r:
		st.turn = r
		r.pos = max(r.pos, st.log.DeliveredTo())
	}
	return st.turn == r, r.cause
}

// batchBytes is about how much is read from the log and written at a time.
const batchBytes = 64 << 10

// Run delivers until the stream has ended (nil), the connection is gone or
// its time for a write is over (the output's error), the reader is stopped
// (the cause), or it is time to rotate (ErrRotated). first is written before
// anything else.
func (r *Reader) Run(enc Encoder, pace Pace, first []byte) error {
	defer r.detach()
	log := &r.st.log
	buf := bufPool.Get().(*[]byte)
	defer func() { putBuf(buf) }()
	if len(first) > 0 {
		if err := r.out.Write(first); err != nil {
			return err
		}
	}
	wrote := time.Now()
	for {
		turn, cause := r.state()
		if cause != nil {
			return cause
		}
		if turn {
			some, ended, err := r.deliver(enc, buf)
			if err != nil || ended {
				return err
			}
			if some {
				wrote = time.Now()
				continue
			}
			log.Wake(r.pos, r.out.Wake)
		}
		putBuf(buf)
		*buf = nil // an idle stream holds no buffer
		beat, rotate := wrote.Add(pace.Beat(wrote)), pace.RotateAt(wrote)
		until := beat
		if !rotate.IsZero() && rotate.Before(until) {
			until = rotate
		}
		if err := r.out.Wait(until); err != nil {
			return err
		}
		now := time.Now()
		switch {
		case now.Before(until):
		case !rotate.IsZero() && !now.Before(rotate):
			return ErrRotated
		default:
			if *buf = enc.Heartbeat((*buf)[:0]); len(*buf) > 0 {
				if err := r.out.Write(*buf); err != nil {
					return err
				}
			}
			wrote = now
		}
	}
}

// deliver writes one batch. ended says that the stream is over, all of it
// written.
func (r *Reader) deliver(enc Encoder, buf *[]byte) (wrote, ended bool, err error) {
	var few [16]eventlog.Event
	log := &r.st.log
	events, missed, more := log.Read(few[:0], r.pos, batchBytes)
	if len(events) == 0 && missed == 0 {
		return false, !more, nil
	}
	if *buf == nil {
		*buf = *(bufPool.Get().(*[]byte))
	}
	b := (*buf)[:0]
	if missed > 0 {
		text := fmt.Sprintf("%d messages between event %s and the next one are no longer retained and were not delivered",
			missed, r.st.EventID(r.pos))
		b = enc.Event(b, r.st, eventlog.Event{Data: lossMessage(text)})
	}
	last := r.pos
	for _, e := range events {
		b = enc.Event(b, r.st, e)
		last = e.Seq
	}
	*buf = b
	if err := r.out.Write(b); err != nil {
		return false, false, err
	}
	r.pos = last
	if len(events) == 0 { // all that is missing was trimmed
		r.pos = log.Head()
	}
	log.Delivered(r.pos)
	r.st.delivered(r.pos)
	return true, !more, nil
}

// bufPool holds the buffers that events are encoded into.
var bufPool = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

func putBuf(b *[]byte) {
	if cap(*b) > 0 && cap(*b) <= 256<<10 {
		keep := (*b)[:0]
		bufPool.Put(&keep)
	}
}
