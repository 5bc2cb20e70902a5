package calls

import (
	"container/list"
	"crypto/rand"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// TaskPrefix begins the ids of the gateway's own tasks.
const TaskPrefix = "hf-task-"

// Limits of a Shelf.
const (
	MaxTasks     = 16 << 10
	MaxTaskBytes = 128 << 20 // of the results
)

// Shelf holds calls that are tasks under the ids by which their clients know
// them, MaxTasks at most. T is the owner's own of a task. Safe for concurrent
// use; it calls nobody.
type Shelf[T any] struct {
	boot string // part of the ids: those of an earlier process are told apart

	mu     sync.Mutex // guards the fields below
	byID   map[string]*shelved[T]
	ended  list.List // of *shelved[T], oldest first
	bytes  int       // of their results
	closed bool
}

type shelved[T any] struct {
	task  T
	of    string
	kept  int
	ended *list.Element
}

// NewShelf returns an empty shelf.
func NewShelf[T any]() *Shelf[T] {
	return &Shelf[T]{boot: rand.Text()[:10], byID: map[string]*shelved[T]{}}
}

// Enter makes a task of somebody known under a new id, of 130 random bits. It
// reports false if there are too many, or after Close.
func (s *Shelf[T]) Enter(of string, task T) (id string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.byID) >= MaxTasks {
		return "", false
	}
	id = TaskPrefix + s.boot + "-" + rand.Text()
	s.byID[id] = &shelved[T]{task: task, of: of}
	return id, true
}

// Find returns somebody's task. For others it does not exist.
func (s *Shelf[T]) Find(id, of string) (task T, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.byID[id]; e != nil && e.of == of {
		return e.task, true
	}
	return task, false
}

// Earlier reports whether an id was made by another shelf: that of another
// server, or of the process before.
func (s *Shelf[T]) Earlier(id string) bool {
	rest, own := strings.CutPrefix(id, TaskPrefix)
	boot, _, _ := strings.Cut(rest, "-")
	return own && boot != s.boot
}

// Finished notes how many bytes are kept of a task that has ended. It returns
// the oldest such tasks whose results are to be given up, since there are more
// than MaxTaskBytes of them all.
func (s *Shelf[T]) Finished(id string, bytes int) (victims []T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.byID[id]
	if e == nil || e.ended != nil {
		return nil
	}
	e.kept, e.ended = bytes, s.ended.PushBack(e)
	s.bytes += bytes
	for s.bytes > MaxTaskBytes {
		old := s.ended.Front().Value.(*shelved[T])
		s.ended.Remove(old.ended)
		s.bytes -= old.kept
		old.kept = 0
		victims = append(victims, old.task)
	}
	return victims
}

// Forget gives up a task.
func (s *Shelf[T]) Forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.byID[id]
	if e == nil {
		return
	}
	delete(s.byID, id)
	if s.bytes -= e.kept; e.ended != nil {
		s.ended.Remove(e.ended) // nothing, if it is out already
	}
}

// Close gives up all tasks, and takes no more. It returns them.
func (s *Shelf[T]) Close() (all []T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.byID {
		all = append(all, e.task)
	}
	s.byID, s.bytes, s.closed = nil, 0, true
	s.ended.Init()
	return all
}

// TaskState is what every revision tells of a task.
type TaskState struct {
	ID, Status       string
	Message          string // "" for none
	Created, Updated time.Time
}

// Members returns the members of a Task that have the same name in every
// revision.
func (s TaskState) Members() []jsonrpc.Member {
	stamp := func(t time.Time) []byte {
		return t.UTC().AppendFormat(nil, `"2006-01-02T15:04:05.000Z"`)
	}
	set := []jsonrpc.Member{
		{Key: "taskId", Value: jsonrpc.AppendString(nil, s.ID)},
		{Key: "status", Value: strconv.AppendQuote(nil, s.Status)},
	}
	if s.Message != "" {
		set = append(set, jsonrpc.Member{Key: "statusMessage", Value: jsonrpc.AppendString(nil, s.Message)})
	}
	return append(set,
		jsonrpc.Member{Key: "createdAt", Value: stamp(s.Created)},
		jsonrpc.Member{Key: "lastUpdatedAt", Value: stamp(s.Updated)})
}

// How often a client is asked to look at a task: less often the longer it runs.
const (
	pollLeast = time.Second
	pollMost  = 5 * time.Second
	pollShare = 20 // of the task's age
)

// PollInterval returns, in milliseconds, how long a client should wait between
// two looks at a task of an age.
func PollInterval(age time.Duration) []byte {
	return strconv.AppendInt(nil, min(pollMost, max(pollLeast, age/pollShare)).Milliseconds(), 10)
}

// maxStatus bounds a task's statusMessage, in bytes.
const maxStatus = 1 << 10

// StatusMessage returns a text as short as a statusMessage is to be.
func StatusMessage(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxStatus)], "")
}

// ProgressMessage returns the params of a progress notification as a
// statusMessage.
func ProgressMessage(params []byte) string {
	text := string(jsonrpc.Get(params, "progress"))
	if total := jsonrpc.Get(params, "total"); total != nil {
		text += " of " + string(total)
	}
	if said := jsonrpc.Unquote(jsonrpc.Get(params, "message")); said != "" {
		text += ": " + said
	}
	return StatusMessage(text)
}
