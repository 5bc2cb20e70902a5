// Package eventlog is the append-only log of one stream, readable from any position and followable at its end.
//
// Nobody is sent an event: a reader keeps a position and pulls, so a slow
// reader holds up neither the writer nor the other readers. It falls out of
// the retained window instead, and is told what it missed.
package eventlog

import "errors"

// Errors of Read and Check. Match with errors.Is.
var (
	// ErrTrimmed: events after the position were given up to stay within the
	// bounds. Reading can go on from the oldest retained event.
	ErrTrimmed = errors.New("eventlog: position no longer retained")
	// ErrUnknown: the log never gave out this position.
	ErrUnknown = errors.New("eventlog: position never given out")
)

// A Seq is a place in one log: 1 for the first event, 0 before it.
type Seq uint64

// An Event is one entry. Its Data must not be modified.
type Event struct {
	Seq  Seq
	Data []byte
	Kept bool // as Append was told
}

// A Log is one stream's events. All methods may be called concurrently.
//
// A log in a shared store will sit behind this interface; Memory is the one
// that there is.
type Log interface {
	// Append adds an event and returns its position. A kept event outlives the
	// bounds of the window until a reader confirms it with Delivered.
	Append(data []byte, keep bool) Seq
	// Read appends to batch the events after a position, up to the present
	// end and about maxBytes, but one at least. missed is how many events in
	// between were trimmed; more says that the log has not ended at the batch.
	Read(batch []Event, after Seq, maxBytes int) (events []Event, missed uint64, more bool)
	// Changed is closed once there is an event after the position, or the log
	// has ended.
	Changed(after Seq) <-chan struct{}
}
