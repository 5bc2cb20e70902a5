package holdfast

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Adopt says which requests join a call whose reader was lost, instead of
// being executed once more.
type Adopt string

// The ways of adoption. The empty one is AdoptAuto.
const (
	// AdoptAuto: an equal request of the same principal, and one with the key of
	// the call.
	AdoptAuto Adopt = "auto"
	// AdoptByKey: only a request with the key of the call.
	AdoptByKey Adopt = "key"
	// AdoptNever: none. For tools whose every call is meant, such as dice.
	AdoptNever Adopt = "never"
)

// OnDisconnect says what becomes of a call that nobody reads any more. The
// empty one is the era's rule: a call of the handshake era goes on and is
// cancelled after OrphanGrace; one of the stateless era is cancelled at once,
// as closing its stream means there. A call with a key lingers in every era.
type OnDisconnect string

// What becomes of such a call, where a tool is configured.
const (
	// DisconnectCancel cancels it as soon as nobody reads it, in every era.
	DisconnectCancel OnDisconnect = "cancel"
	// DisconnectLinger gives it OrphanGrace in every era. In the stateless one
	// this departs from the specification: a client there has no other way to
	// cancel, so one that cancels leaves a call running for the grace. It is for
	// tools that are costly to begin again, behind paths that cut.
	DisconnectLinger OnDisconnect = "linger"
	// DisconnectKeep never cancels it for want of a reader, in any era, departing
	// from the specification as DisconnectLinger does.
	DisconnectKeep OnDisconnect = "keep"
)

// TaskMode says which calls of a tool become tasks, for clients that can take
// tasks. The empty one: those that take longer than TaskAfter. Clients of
// revision 2025-11-25 say so themselves, for each call: to them the tool is
// offered as a task if its entry names a mode other than TaskNever, or a
// TaskAfter.
type TaskMode string

// The modes.
const (
	// TaskNever: none.
	TaskNever TaskMode = "never"
	// TaskAlways: each, from the start.
	TaskAlways TaskMode = "always"
	// TaskRequired is TaskAlways, and stateless clients that cannot take tasks may
	// not call: for tools whose calls no connection outlasts.
	TaskRequired TaskMode = "required"
)

// Tool is what holds for the calls of a tool, or of all tools that a pattern
// names. Zero fields inherit from the server.
type Tool struct {
	// Name is a tool's name, or a pattern in which * stands for any text, also
	// for none.
	Name string
	// Adopt. Default: AdoptAuto.
	Adopt Adopt
	// OnDisconnect. Default: the era's rule.
	OnDisconnect OnDisconnect
	// RequestTimeout, RequestMax and OrphanGrace are those of Timers.
	RequestTimeout, RequestMax, OrphanGrace time.Duration
	// Task. Default: a call becomes a task after TaskAfter.
	Task TaskMode
	// TaskAfter is that of Timers.
	TaskAfter time.Duration
}

// Tool returns what holds for the calls of one tool: its own entry of s.Tools,
// else that of the longest pattern that its name matches (of equally long ones
// the first), and for what that leaves open, the server's timers and then the
// defaults. Only one entry counts. The timers of the gateway are among the
// server's from New on. Safe for concurrent use.
func (s Server) Tool(name string) Tool {
	found := s.entry(name)
	timers := s.Timers.withDefaults()
	return Tool{
		Name:           name,
		Adopt:          cmp.Or(found.Adopt, AdoptAuto),
		OnDisconnect:   found.OnDisconnect,
		RequestTimeout: cmp.Or(found.RequestTimeout, timers.RequestTimeout),
		RequestMax:     cmp.Or(found.RequestMax, timers.RequestMax),
		OrphanGrace:    cmp.Or(found.OrphanGrace, timers.OrphanGrace),
		Task:           found.Task,
		TaskAfter:      cmp.Or(found.TaskAfter, timers.TaskAfter),
	}
}

// entry returns the entry of s.Tools that counts for a tool, an empty one if
// none does.
func (s Server) entry(name string) (found Tool) {
	for _, t := range s.Tools {
		if t.Name == name {
			return t
		}
		if len(t.Name) > len(found.Name) && matches(t.Name, name) {
			found = t
		}
	}
	return found
}

// check returns what is wrong with an entry, "" if it is right.
func (t Tool) check() string {
	switch {
	case t.Name == "":
		return "it needs a name"
	case !slices.Contains([]Adopt{"", AdoptAuto, AdoptByKey, AdoptNever}, t.Adopt):
		return fmt.Sprintf("adopt %q must be auto, key or never", t.Adopt)
	case !slices.Contains([]OnDisconnect{"", DisconnectCancel, DisconnectLinger, DisconnectKeep}, t.OnDisconnect):
		return fmt.Sprintf("on disconnect %q must be cancel, linger or keep", t.OnDisconnect)
	case !slices.Contains([]TaskMode{"", TaskNever, TaskAlways, TaskRequired}, t.Task):
		return fmt.Sprintf("task %q must be never, always or required", t.Task)
	case t.Task != "" && t.TaskAfter != 0:
		return fmt.Sprintf("task is %q: there is no time after which", t.Task)
	}
	return ""
}

// matches reports whether name has the form of pattern, in which * stands for
// any text.
func matches(pattern, name string) bool {
	head, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == name
	}
	name, ok := strings.CutPrefix(name, head)
	for ok {
		var part string
		if part, rest, wild = strings.Cut(rest, "*"); !wild {
			return strings.HasSuffix(name, part)
		}
		_, name, ok = strings.Cut(name, part) // the first place leaves most for the rest
	}
	return false
}
