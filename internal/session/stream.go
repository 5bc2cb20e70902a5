package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-mcp/holdfast/eventlog"
	"github.com/holdfast-mcp/holdfast/internal/wire"
)

// ErrUnknownEvent: an event id that this session never gave out.
var ErrUnknownEvent = errors.New("session: event id never given out")

// Stream is what one POST is answered with, or the general stream.
type Stream struct {
	sess   *Session
	log    eventlog.Memory
	events bool // the client takes an event stream
	alone  bool // one request is answered on it

	// Guarded by sess.mu.
	num     uint64 // in event ids; 0: the general stream, or none given out yet
	pending int    // calls not answered yet
	reader  *Reader
	turn    *Reader  // the one that may be writing; another reader than that waits for it
	posting bool     // its POST may yet come to read it, even after the session's end
	lost    bool     // the book was told that nobody reads it
	ends    []ended  // answers that were not confirmed yet, in order
	one     [1]ended // what ends mostly is

	forgotten bool // written in one piece
}

// General returns the stream of messages that belong to no POST. It never ends.
func (s *Session) General() *Stream { return &s.general }

// Post returns a stream for the answers to n requests of one POST. events says
// that the client takes an event stream, so that notifications may go there.
func (s *Session) Post(n int, events bool) *Stream {
	if s.single {
		return &s.general
	}
	st := &Stream{sess: s, pending: n, events: events, alone: n == 1, posting: true}
	st.log.SetLimits(s.limits.Stream)
	s.mu.Lock()
	if s.ended == nil {
		s.posts = append(s.posts, st)
	} else {
		st.log.End()
	}
	s.mu.Unlock()
	return st
}

func (s *Session) dropPostLocked(st *Stream) {
	if i := slices.Index(s.posts, st); i >= 0 {
		s.posts = slices.Delete(s.posts, i, i+1)
	}
}

// Log returns the stream's log.
func (st *Stream) Log() *eventlog.Memory { return &st.log }

// Forget frees a stream whose answers were written in one piece, so that no
// event id was given out. fate tells later whether they arrived.
func (st *Stream) Forget(fate *wire.Fate) {
	s := st.sess
	if st == &s.general {
		return
	}
	s.mu.Lock()
	st.forgotten = true
	entered := len(st.ends) > 0
	s.mu.Unlock()
	st.log.Release()
	if entered {
		fate.Await((*outcome)(st))
	}
}

// outcome is a stream whose answers were written, to be told what became of them.
type outcome Stream

// Arrived implements wire.Told.
func (o *outcome) Arrived(ok bool) {
	o.sess.mu.Lock()
	ends := o.ends // nothing is added any more
	o.sess.mu.Unlock()
	for _, e := range ends {
		if ok {
			o.sess.book.Deliver(e.entry)
		} else {
			o.sess.book.Lose(e.entry)
		}
	}
}

// Posted says that the POST is over, answered or not. What the stream holds is
// kept for resumption, as long as the session is.
func (st *Stream) Posted() {
	s := st.sess
	s.mu.Lock()
	st.posting = false
	if s.ended != nil && st.reader == nil && st != &s.general {
		st.log.Release()
	}
	lost := !st.forgotten && (st.pending > 0 || len(st.ends) > 0)
	s.mu.Unlock()
	if lost {
		st.readChanged()
	}
}

// Name registers the stream for resumption: from now on its event ids count.
func (st *Stream) Name() {
	s := st.sess
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.num != 0 || s.ended != nil || st == &s.general {
		return
	}
	s.lastPost++
	st.num = s.lastPost
	if s.streams == nil {
		s.streams = map[uint64]*Stream{}
	}
	s.streams[st.num] = st
	s.pruneLocked()
}

// Named reports whether the stream can be resumed.
func (st *Stream) Named() bool {
	st.sess.mu.Lock()
	defer st.sess.mu.Unlock()
	return st.num != 0
}

// pruneLocked gives up the oldest finished streams, but none with an answer
// that nobody has read.
func (s *Session) pruneLocked() {
	for n := s.lastPost; len(s.streams) > s.limits.Streams; {
		oldest := uint64(0)
		for num, st := range s.streams {
			kept, _ := st.log.Kept()
			if st.pending <= 0 && st.reader == nil && kept == 0 && num < n && (oldest == 0 || num < oldest) {
				oldest = num
			}
		}
		if oldest == 0 {
			return
		}
		s.streams[oldest].log.Release()
		delete(s.streams, oldest)
	}
}

// drop frees a stream whose answer was kept for its client, and is no longer.
func (s *Session) drop(st *Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.dropLocked()
}

// dropLocked does so, and reports whether it did: not while a call or a reader
// needs the stream.
func (st *Stream) dropLocked() bool {
	s := st.sess
	if st == &s.general || st.pending > 0 || st.reader != nil {
		return false
	}
	delete(s.streams, st.num)
	st.ends = nil
	st.log.Release()
	return true
}

// Abandon says that nobody will read the stream: what it holds, and what may
// still come, is freed. The calls go on.
func (st *Stream) Abandon() {
	s := st.sess
	s.mu.Lock()
	s.dropPostLocked(st)
	st.events = false
	s.mu.Unlock()
	st.log.Release()
}

// EventID names a position: the stream's number, then the event's.
func (st *Stream) EventID(seq eventlog.Seq) string {
	return string(st.AppendEventID(nil, seq))
}

// AppendEventID appends what EventID returns.
func (st *Stream) AppendEventID(dst []byte, seq eventlog.Seq) []byte {
	dst = strconv.AppendUint(dst, st.num, 10)
	return strconv.AppendUint(append(dst, '-'), uint64(seq), 10)
}

// Find returns the stream and position that an event id names. A stream that
// is no longer retained is replaced by an empty one that tells of the loss.
func (s *Session) Find(eventID string) (*Stream, eventlog.Seq, error) {
	unknown := fmt.Errorf("%w: %.64q", ErrUnknownEvent, eventID)
	a, b, ok := strings.Cut(eventID, "-")
	num, err1 := strconv.ParseUint(a, 10, 64)
	seq, err2 := strconv.ParseUint(b, 10, 64)
	if !ok || err1 != nil || err2 != nil || strconv.FormatUint(num, 10) != a || strconv.FormatUint(seq, 10) != b {
		return nil, 0, unknown
	}
	s.mu.Lock()
	st, last := s.streams[num], s.lastPost
	s.mu.Unlock()
	switch {
	case num == 0:
		st = &s.general
	case num > last:
		return nil, 0, unknown
	case st == nil: // all of it was delivered, and then given up
		gone := &Stream{sess: s, num: num}
		gone.log.Finish(lossMessage("this stream was delivered to its end and is no longer retained"))
		return gone, 0, nil
	}
	if errors.Is(st.log.Check(eventlog.Seq(seq)), eventlog.ErrUnknown) {
		return nil, 0, unknown
	}
	return st, eventlog.Seq(seq), nil
}

// lossMessage is the log message that says what a reader has missed.
func lossMessage(what string) []byte {
	data, _ := json.Marshal(what)
	return append(append([]byte(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"warning","logger":"holdfast","data":`),
		data...), '}', '}')
}

func unmarshal(b []byte, v any) error { return json.Unmarshal(b, v) }
