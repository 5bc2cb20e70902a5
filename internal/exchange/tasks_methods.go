package exchange

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/calls"
	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// stateLocked are the members of a Task, less what only some states have.
func (j *job) stateLocked() []jsonrpc.Member {
	until, age := time.Now(), time.Since(j.created)
	if j.phase.ended() {
		until = j.updated
	}
	ttl := until.Add(j.h.o.Ledger.TTL).Sub(j.created) // while it runs, its time grows with it
	state := calls.TaskState{ID: j.id, Status: statuses[j.phase], Message: j.message, Created: j.created, Updated: j.updated}
	return append(state.Members(),
		jsonrpc.Member{Key: "ttlMs", Value: strconv.AppendInt(nil, max(1, ttl.Milliseconds()), 10)},
		jsonrpc.Member{Key: "pollIntervalMs", Value: calls.PollInterval(age)})
}

// detailLocked is a DetailedTask: what tasks/get returns, and notifications/tasks
// says.
func (j *job) detailLocked(more ...jsonrpc.Member) []byte {
	set := append(more, j.stateLocked()...)
	switch j.phase {
	case inputRequired:
		set = append(set, jsonrpc.Member{Key: "inputRequests", Value: jsonrpc.AppendObject(nil, nil, nil, j.inputs...)})
	case completed:
		set = append(set, jsonrpc.Member{Key: "result", Value: j.body})
	case failed:
		set = append(set, jsonrpc.Member{Key: "error", Value: j.body})
	}
	return jsonrpc.AppendObject(nil, nil, nil, set...)
}

var complete = jsonrpc.Member{Key: "resultType", Value: []byte(`"complete"`)}

// aboutTask answers a request about one of the gateway's own tasks. ok is false
// if it is about none of these: a server may have tasks of its own.
func (h *Host) aboutTask(a *asked) (ok bool, fail *Failure) {
	if h.o.Tasks == nil || !era.OfTask(a.method) {
		return false, nil
	}
	params := a.message.Raw(jsonrpc.Params)
	id := quoted(jsonrpc.Get(params, "taskId"))
	switch {
	case !strings.HasPrefix(id, calls.TaskPrefix):
		return false, nil
	case !era.TakesTasks(a.capabilities):
		return true, missingTasks(a.method + " needs it")
	}
	j, _ := h.jobs.Find(id, a.principal)
	responses := jsonrpc.Get(params, "inputResponses")
	answer := jsonrpc.AppendResult(nil, a.id, []byte(`{"resultType":"complete"}`))
	switch {
	case j == nil:
		answer = h.noTask(a, h.jobs.Earlier(id))
	case a.method == "tasks/get":
		j.mu.Lock()
		detail := j.detailLocked(complete)
		j.fetchedLocked()
		j.mu.Unlock()
		answer = jsonrpc.AppendResult(nil, a.id, detail)
	case a.method == "tasks/cancel":
		j.cancel("the client cancelled the task")
	case len(responses) == 0 || responses[0] != '{':
		answer = jsonrpc.AppendError(nil, a.id, jsonrpc.CodeInvalidParams, "params.inputResponses must be an object", nil)
	default:
		j.update(responses)
	}
	a.emit(answer, true)
	return true, nil
}

// noTask is the answer to a request about a task that is not known: to this
// principal, since one cannot tell of others' tasks (SEP-2663, "Protocol
// Errors").
func (h *Host) noTask(a *asked, earlier bool) []byte {
	if earlier {
		return jsonrpc.AppendError(nil, a.id, jsonrpc.CodeInvalidParams, "no such task here: it is another server's, or was made before the gateway was started anew. "+
			"Calls end with the gateway, and whether this one was executed is not known: look at what it was to do before calling again", []byte(`{"outcome":"unknown"}`))
	}
	return jsonrpc.AppendError(nil, a.id, jsonrpc.CodeInvalidParams, "no such task: it is unknown, its time (ttlMs) is over, or it is not yours", nil)
}

// refuseTasks answers what a server of the handshake era has not: the
// extension's requests about tasks that are not the gateway's, and those of
// revision 2025-11-25, which the extension has no more (SEP-2663, "Backward
// Compatibility"). It reports false for other requests.
func refuseTasks(a *asked) bool {
	switch {
	case era.OfTask(a.method):
		if !era.TakesTasks(a.capabilities) {
			f := missingTasks(a.method + " needs it")
			a.answer(f.Answer(a.id))
			break
		}
		a.fail(jsonrpc.CodeInvalidParams, "no such task", "")
	case a.method == "tasks/result" || a.method == "tasks/list":
		a.fail(jsonrpc.CodeMethodNotFound, a.method+" does not exist in revision "+string(era.V20260728), "")
	default:
		return false
	}
	return true
}

// quoted returns a JSON string's text, "" for what is none.
func quoted(raw []byte) string {
	var text string
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &text) != nil {
		return ""
	}
	return text
}
