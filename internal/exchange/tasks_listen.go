package exchange

import (
	"encoding/json"
	"strings"
	"sync"

	"github.com/holdfast-mcp/holdfast/internal/calls"
	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// taskHearer is a subscription that wants to hear of tasks.
type taskHearer struct {
	id   []byte // of the listen request
	emit func(msg []byte, final bool)
	jobs []*job

	mu    sync.Mutex // guards the fields below
	ready bool       // the acknowledgement is out
	over  bool
}

// hear makes a subscription hear of the gateway's own tasks that it names
// (SEP-2663, "Task Status Notifications"). The server is asked for the others
// only. The failure, if there is one, is the answer.
func (h *Host) hear(a *asked) (*taskHearer, *Failure) {
	if h.o.Tasks == nil || a.method != "subscriptions/listen" {
		return nil, nil
	}
	params := a.message.Raw(jsonrpc.Params)
	filter := jsonrpc.Get(params, "notifications")
	raw := jsonrpc.Get(filter, "taskIds")
	if raw == nil {
		return nil, nil
	}
	if !era.TakesTasks(a.capabilities) {
		return nil, missingTasks("notifications.taskIds needs it")
	}
	var ids, others []string
	if json.Unmarshal(raw, &ids) != nil {
		return nil, &Failure{Code: jsonrpc.CodeInvalidParams, Text: "params.notifications.taskIds must be a list of texts"}
	}
	s := &taskHearer{id: a.id, emit: a.emit}
	for _, id := range ids {
		if !strings.HasPrefix(id, calls.TaskPrefix) {
			others = append(others, id)
		} else if j, ok := h.jobs.Find(id, a.principal); ok {
			s.jobs = append(s.jobs, j)
		}
	}
	var set []jsonrpc.Member
	if len(others) > 0 {
		left, _ := json.Marshal(others)
		set = []jsonrpc.Member{{Key: "taskIds", Value: left}}
	}
	filter = jsonrpc.AppendObject(nil, filter, []string{"taskIds"}, set...)
	params = jsonrpc.AppendObject(nil, params, nil, jsonrpc.Member{Key: "notifications", Value: filter})
	m, err := jsonrpc.Parse(a.message.Append(nil, jsonrpc.Edit{Field: jsonrpc.Params, With: params}))
	if err != nil {
		return nil, &Failure{Code: jsonrpc.CodeInvalidParams, Text: "params.notifications makes no sense"}
	}
	a.message, a.emit = m, s.pass
	a.client, a.capabilities = m.Raw(jsonrpc.MetaClient), m.Raw(jsonrpc.MetaCapabilities)
	return s, nil
}

// pass takes what the subscription says otherwise.
func (s *taskHearer) pass(msg []byte, final bool) {
	if final {
		s.leave()
		s.emit(msg, true)
		return
	}
	s.mu.Lock()
	first := !s.ready && !s.over
	if first {
		s.ready = true
		msg = s.acknowledge(msg)
	}
	s.emit(msg, false)
	s.mu.Unlock()
	if first {
		for _, j := range s.jobs {
			j.heard(s)
		}
	}
}

// acknowledge adds the tasks to what is acknowledged.
func (s *taskHearer) acknowledge(msg []byte) []byte {
	m, err := jsonrpc.Parse(msg)
	if err != nil || len(s.jobs) == 0 {
		return msg
	}
	params := m.Raw(jsonrpc.Params)
	filter := jsonrpc.Get(params, "notifications")
	var ids []string
	_ = json.Unmarshal(jsonrpc.Get(filter, "taskIds"), &ids) // those of the server, if it has any
	for _, j := range s.jobs {
		ids = append(ids, j.id)
	}
	all, _ := json.Marshal(ids)
	filter = jsonrpc.AppendObject(nil, filter, nil, jsonrpc.Member{Key: "taskIds", Value: all})
	return m.Append(nil, jsonrpc.Edit{Field: jsonrpc.Params, With: jsonrpc.AppendObject(nil, params, nil, jsonrpc.Member{Key: "notifications", Value: filter})})
}

// leave ends it.
func (s *taskHearer) leave() {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	for _, j := range s.jobs {
		j.mu.Lock()
		delete(j.hearers, s)
		j.mu.Unlock()
	}
}

// heard makes a subscription hear of the task, and of its present state first:
// the client may have seen an older one.
func (j *job) heard(s *taskHearer) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.hearers == nil {
		j.hearers = map[*taskHearer]bool{}
	}
	j.hearers[s] = true
	if !s.tell(j.detailLocked()) { // it has ended meanwhile
		delete(j.hearers, s)
	} else {
		j.fetchedLocked()
	}
}

// fetchedLocked notes that the client knows where the task stands.
func (j *job) fetchedLocked() {
	if j.phase.ended() {
		j.h.unfetched.Fetched(j.id)
	}
}

// announceLocked tells who listens of the task's new state.
func (j *job) announceLocked() {
	if len(j.hearers) == 0 {
		return
	}
	detail := j.detailLocked()
	for s := range j.hearers {
		if s.tell(detail) {
			j.fetchedLocked()
		}
	}
}

// tell sends the state of a task, and reports whether anybody is there to hear
// it. The lock of its job is held.
func (s *taskHearer) tell(detail []byte) bool {
	meta := jsonrpc.AppendObject(nil, nil, nil, jsonrpc.Member{Key: era.MetaSubscription, Value: s.id})
	params := jsonrpc.AppendObject(nil, detail, nil, jsonrpc.Member{Key: "_meta", Value: meta})
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.emit(append(append([]byte(`{"jsonrpc":"2.0","method":"notifications/tasks","params":`), params...), '}'), false)
	}
	return !s.over
}
