// Package observe is the one kind of thing that can be observed: something ended, or was found out, and why.
//
// It has no I/O and no state. Log lines and whoever listens to Options.Observe
// get the same events.
package observe

import (
	"log/slog"
	"time"
)

// Party is who ended something.
type Party string

// The parties.
const (
	Client  Party = "client"
	Gateway Party = "gateway"
	Server  Party = "server"
	Path    Party = "path" // something between client and gateway: a proxy, a load balancer, the network
	Unknown Party = "unknown"
)

// Sureness is how sure it is that the party did it.
type Sureness string

// The degrees of sureness.
const (
	Certain Sureness = "certain" // it was said, or the gateway did it itself
	Likely  Sureness = "likely"  // it fits what was learned about this path
	Guess   Sureness = "guess"   // the connection ended without a word
)

// Cause is why a stream, a session, a call or a conversation ended. The list is
// closed: All has every one.
type Cause string

// The causes.
const (
	Answered        Cause = "answered"
	ClientLeft      Cause = "client left"              // it closed the connection, or stopped being there
	ClientCancelled Cause = "client cancelled"         // notifications/cancelled; in the stateless era, closing the stream
	Deleted         Cause = "deleted"                  // DELETE of the session
	Superseded      Cause = "superseded"               // the client opened the same stream again
	HeartbeatFailed Cause = "heartbeat write failed"   // found dead only when something was written
	SlowReader      Cause = "slow reader"              // the client did not read within the write time-out
	PathSilence     Cause = "path cut (idle)"          // something between cuts quiet connections
	PathAge         Cause = "path cut (age)"           // something between cuts old connections
	Rotation        Cause = "rotation"                 // the gateway closed it before the path would
	Drain           Cause = "drain"                    // the gateway is stopping
	SessionIdle     Cause = "idle session"             // the session time-out
	Abandoned       Cause = "client did not come back" // the reconnect grace
	Evicted         Cause = "evicted"                  // its place was needed
	OrphanGrace     Cause = "orphan grace"             // nobody read the call for that long
	RequestIdle     Cause = "request idle"             // --request-timeout
	RequestMaximum  Cause = "request maximum"          // --request-max
	QuestionTimeout Cause = "question unanswered"      // --question-timeout
	StartTimeout    Cause = "start time-out"           // no answer to initialize
	ServerExited    Cause = "server exited"
	ServerStuck     Cause = "server stuck"
	ServerGone      Cause = "server gone" // it closed its output, or could not be started
	ProtocolError   Cause = "protocol error"
	Refused         Cause = "refused"
	Adopted         Cause = "adopted" // a later equal request has it now
)

// All lists every cause.
func All() []Cause {
	return []Cause{Answered, ClientLeft, ClientCancelled, Deleted, Superseded, HeartbeatFailed, SlowReader, PathSilence, PathAge,
		Rotation, Drain, SessionIdle, Abandoned, Evicted, OrphanGrace, RequestIdle, RequestMaximum, QuestionTimeout, StartTimeout,
		ServerExited, ServerStuck, ServerGone, ProtocolError, Refused, Adopted}
}

// Who returns the party that a cause names, and how sure that is when nothing
// more is known than the cause.
func (c Cause) Who() (Party, Sureness) {
	switch c {
	case ClientCancelled, Deleted, Superseded:
		return Client, Certain
	case ClientLeft, HeartbeatFailed, SlowReader:
		return Client, Guess // a path that cuts looks the same
	case PathSilence, PathAge:
		return Path, Likely
	case Answered, ServerExited, ServerStuck, ServerGone:
		return Server, Certain
	case ProtocolError:
		return Unknown, Guess
	}
	return Gateway, Certain
}

// Subject is what ended, or what something was found out about.
type Subject string

// The subjects.
const (
	Stream       Subject = "stream"
	Session      Subject = "session"
	Call         Subject = "call"
	Conversation Subject = "conversation" // with a server
	Route        Subject = "route"        // how clients reach an endpoint
)

// Event is one thing that happened. Zero fields are not known, or do not apply.
type Event struct {
	Subject Subject
	Cause   Cause // of an end; "" for a finding
	Who     Party
	Sure    Sureness
	Text    string        // a finding, for people
	Server  string        // the configured name
	Session string        // the beginning of the session's id
	ID      string        // of the call or stream
	Method  string        // of a call, with the tool's name after a space
	Age     time.Duration // of what ended
	Silence time.Duration // since the last byte, or sign of work
}

// Attrs returns the event's known fields for a log line.
func (e Event) Attrs() []slog.Attr {
	attrs := make([]slog.Attr, 0, 10)
	text := func(key, v string) {
		if v != "" {
			attrs = append(attrs, slog.String(key, v))
		}
	}
	text("cause", string(e.Cause))
	text("who", string(e.Who))
	text("sure", string(e.Sure))
	text("server", e.Server)
	text("session", e.Session)
	text("id", e.ID)
	text("method", e.Method)
	for _, of := range []struct {
		key string
		d   time.Duration
	}{{"age", e.Age}, {"silence", e.Silence}} {
		if of.d > 0 {
			attrs = append(attrs, slog.Duration(of.key, of.d.Round(time.Millisecond)))
		}
	}
	return attrs
}

// Ended returns the event of an end, with the party that the cause names.
func Ended(s Subject, c Cause) Event {
	who, sure := c.Who()
	return Event{Subject: s, Cause: c, Who: who, Sure: sure}
}
