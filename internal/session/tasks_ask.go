package session

import (
	"cmp"
	"slices"

	"github.com/holdfast-mcp/holdfast/eventlog"
	"github.com/holdfast-mcp/holdfast/internal/calls"
	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// What a server says while it executes a task goes to a stream on which its
// client asks for the result, as the specification proposes; without one, to
// where any message goes that belongs to no call. A question that nobody would
// read waits: the client sees the status input_required, and asks for the
// result.

// question is a request of the server to the client that is not answered yet.
type question struct {
	id  string // raw JSON, as the client knows it
	msg []byte
	st  *Stream // where it stands; nil: nowhere yet
	seq eventlog.Seq
}

// maxQuestions bounds those that are kept, of one task.
const maxQuestions = 64

// withMeta returns a message that says which task it is about.
func (t *task) withMeta(m *jsonrpc.Message) []byte {
	params := m.Raw(jsonrpc.Params)
	meta := jsonrpc.AppendWith(nil, jsonrpc.Get(params, "_meta"), era.MetaRelatedTask, t.related())
	return jsonrpc.AppendWith(nil, m.Bytes(), "params", jsonrpc.AppendWith(nil, params, "_meta", meta))
}

// hearLocked takes a message of the execution.
func (t *task) hearLocked(msg []byte) {
	m, err := jsonrpc.Parse(msg)
	switch {
	case err != nil || t.gone || t.endedLocked():
		return
	case m.Kind() == jsonrpc.Request:
		t.askLocked(m)
		return
	case m.Is("notifications/cancelled"):
		if q := t.takeLocked(string(m.Raw(jsonrpc.RequestID))); q != nil {
			if q.st != nil {
				q.st.log.Append(t.withMeta(m), false)
			}
			return
		}
	case m.Is("notifications/progress"):
		if t.status == taskWorking {
			t.message = calls.ProgressMessage(m.Raw(jsonrpc.Params))
		}
		if t.run.quiet {
			return
		}
	}
	if st := t.streamLocked(); st != nil {
		st.log.Append(t.withMeta(m), false)
	}
}

// readLocked reports whether somebody reads the stream, or is about to.
func (st *Stream) readLocked() bool { return st.reader != nil || st.posting }

// waitsLocked returns the newest stream on which the client waits for the
// result, nil if there is none that can take messages.
func (t *task) waitsLocked() *Stream {
	for _, w := range slices.Backward(t.waiters) {
		if st := w.st; st == &t.sess.general || st.events && st.pending > 0 && st.readLocked() {
			return st
		}
	}
	return nil
}

// streamLocked returns the stream for what need not arrive: nil if nobody would
// read it.
func (t *task) streamLocked() *Stream {
	if st := t.waitsLocked(); st != nil {
		return st
	}
	s := t.sess
	st := s.streamForLocked(nil)
	if s.single || st.readLocked() || st == &s.general && s.desk.listened { // its reader will be back
		return st
	}
	return nil
}

// announceLocked tells the client of a new status, where it listens.
func (t *task) announceLocked() {
	s := t.sess
	st := t.waitsLocked()
	if s.single || s.general.reader != nil || st == nil && s.desk.listened {
		st = &s.general
	}
	if st != nil {
		st.log.Append(append(append([]byte(`{"jsonrpc":"2.0","method":"notifications/tasks/status","params":`), t.stateLocked()...), '}'), false)
	}
}

// askLocked takes a question of the execution.
func (t *task) askLocked(m *jsonrpc.Message) {
	q := &question{id: string(m.Raw(jsonrpc.ID)), msg: t.withMeta(m)}
	if len(t.questions) < maxQuestions {
		t.questions = append(t.questions, q)
	}
	t.moveLocked(taskAsks, "The server asks something: tasks/result brings its question.")
	t.sess.putLocked(q, t.waitsLocked())
}

// putLocked writes a question to a stream that is read: the one given, else
// where any goes that belongs to no call.
func (s *Session) putLocked(q *question, st *Stream) {
	if st == nil {
		if st = s.streamForLocked(nil); !s.single && !st.readLocked() {
			return
		}
	}
	q.st, q.seq = st, st.log.Append(q.msg, false)
}

// lostLocked reports whether a question stands where nobody will find it. asked
// says that the client has just asked for the result: it does not come back for
// what another request for it was told.
func (s *Session) lostLocked(q *question, asked bool) bool {
	switch {
	case q.st == nil:
		return true
	case s.single || q.st.readLocked():
		return false
	}
	return q.st.log.DeliveredTo() < q.seq || asked && q.st != &s.general
}

// placeLocked writes the questions again that are lost.
func (t *task) placeLocked(asked bool) {
	for _, q := range t.questions {
		if t.sess.lostLocked(q, asked) {
			t.sess.putLocked(q, t.waitsLocked())
		}
	}
}

// placeStrayLocked writes those that may be any task's.
func (s *Session) placeStrayLocked(st *Stream) {
	if st != nil && !(st == &s.general || st.events && st.pending > 0 && st.readLocked()) {
		st = nil
	}
	for _, q := range s.desk.stray {
		if q.st == nil {
			s.putLocked(q, st)
		}
	}
}

// readersChanged finds a place for questions after a stream has won or lost its
// reader.
func (s *Session) readersChanged() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.desk == nil || s.ended != nil {
		return
	}
	s.desk.listened = s.desk.listened || s.general.reader != nil
	for _, t := range s.desk.tasks {
		t.placeLocked(false)
	}
	s.placeStrayLocked(nil)
}

// strayLocked takes a message that names no call. It reports whether it is a
// question that nobody would read, while tasks are running: it may be of one of
// them, so all of them let their client ask.
func (s *Session) strayLocked(msg []byte) bool {
	if s.desk == nil || len(s.desk.tasks) == 0 || s.single {
		return false
	}
	m, err := jsonrpc.Parse(msg)
	switch {
	case err != nil:
		return false
	case m.Is("notifications/cancelled"):
		q := s.takeStrayLocked(string(m.Raw(jsonrpc.RequestID)))
		return q != nil && q.st == nil
	case m.Kind() != jsonrpc.Request || s.streamForLocked(nil).readLocked() || len(s.desk.stray) >= maxQuestions:
		return false
	}
	running, st := false, (*Stream)(nil)
	for _, t := range s.desk.tasks {
		if !t.endedLocked() {
			t.moveLocked(taskAsks, "The server asks something, maybe for another call: tasks/result brings its question.")
			running, st = true, cmp.Or(t.waitsLocked(), st)
		}
	}
	if running {
		s.desk.stray = append(s.desk.stray, &question{id: string(m.Raw(jsonrpc.ID)), msg: msg})
		s.placeStrayLocked(st)
	}
	return running
}

// repliedLocked takes out a question that the client has answered.
func (s *Session) repliedLocked(id string) {
	if s.desk == nil {
		return
	}
	for _, t := range s.desk.tasks {
		if t.takeLocked(id) != nil {
			return
		}
	}
	s.takeStrayLocked(id)
}

// takeLocked takes a question of the task out, nil if it has none of the id.
func (t *task) takeLocked(id string) *question {
	q := take(&t.questions, id)
	if q != nil {
		t.goOnLocked()
	}
	return q
}

func (s *Session) takeStrayLocked(id string) *question {
	q := take(&s.desk.stray, id)
	if q != nil {
		for _, t := range s.desk.tasks {
			t.goOnLocked()
		}
	}
	return q
}

func take(from *[]*question, id string) (found *question) {
	*from = slices.DeleteFunc(*from, func(q *question) bool {
		if q.id == id {
			found = q
		}
		return q.id == id
	})
	return found
}

// goOnLocked lets a task work that nothing is asked for any more.
func (t *task) goOnLocked() {
	if len(t.questions) == 0 && len(t.sess.desk.stray) == 0 {
		t.moveLocked(taskWorking, "")
	}
}
