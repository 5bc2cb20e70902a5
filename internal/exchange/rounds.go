package exchange

import (
	"slices"

	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// resume goes on with the execution that a retry names.
func (h *Host) resume(t *errand, sealed []byte) {
	a := t.call
	id, round, err := h.unseal(sealed, a)
	var r *run
	if err == nil {
		h.mu.Lock()
		r = h.runs[id]
		if r != nil && r.current(round) {
			delete(h.runs, id)
		} else {
			r, err = nil, errState
		}
		h.mu.Unlock()
	}
	if err != nil {
		a.fail(jsonrpc.CodeInvalidParams, err.Error(), `{"outcome":"not_executed"}`)
		return
	}
	r.attach(t, a)
}

func (r *run) current(round int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.round == round && r.asked == nil
}

// attach makes a retry the one that waits, and hands its answers over.
func (r *run) attach(t *errand, a *asked) {
	responses := jsonrpc.Get(a.message.Raw(jsonrpc.Params), "inputResponses")
	r.mu.Lock()
	if r.ended && r.final == nil { // given up just now
		r.mu.Unlock()
		a.fail(jsonrpc.CodeInvalidParams, errState.Error(), `{"outcome":"not_executed"}`)
		return
	}
	r.asked = a
	for _, m := range r.kept {
		r.noteLocked(m)
	}
	r.kept = nil
	if r.expiry != nil {
		r.expiry.Stop()
		r.expiry = nil
	}
	replies, refused, again := r.takeLocked(responses)
	final := r.final
	if final == nil && refused == nil && len(r.open) > 0 { // asked again, with what the server asks next
		r.askLocked(gatherTime)
	}
	r.mu.Unlock()
	if final != nil {
		a.answer(withID(final, a.id))
		return
	}
	r.proceed(t, a, replies, refused, again)
}

// proceed goes on with what takeLocked returned.
func (r *run) proceed(t *errand, a *asked, replies [][]byte, refused []byte, again bool) {
	for _, reply := range replies {
		if m, err := jsonrpc.Parse(reply); err == nil {
			r.lane.conv.Reply(r.lane, m)
		}
	}
	switch {
	case refused != nil:
		r.finish(refused)
	case again:
		r.execute(t, a)
	default:
		t.begun(r.cancel)
		a.sent()
	}
}

// takeLocked takes what a client answers: replies are for the server, refused
// and again are as of openedLocked.
func (r *run) takeLocked(responses []byte) (replies [][]byte, refused []byte, again bool) {
	refused, again = r.openedLocked(responses)
	r.open = slices.DeleteFunc(r.open, func(q question) bool {
		response := jsonrpc.Get(responses, q.key)
		if q.id == nil || len(response) == 0 || response[0] != '{' { // no result
			return false
		}
		replies = append(replies, jsonrpc.AppendResult(nil, q.id, response))
		return true
	})
	return replies, refused, again
}

// respond takes the answers that came for a task.
func (r *run) respond(responses []byte) {
	r.mu.Lock()
	a := r.asked
	if r.ended || a == nil {
		r.mu.Unlock()
		return
	}
	replies, refused, again := r.takeLocked(responses)
	r.poseLocked()
	r.mu.Unlock()
	r.proceed(&errand{}, a, replies, refused, again)
}
