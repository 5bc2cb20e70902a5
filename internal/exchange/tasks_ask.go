package exchange

import (
	"bytes"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/observe"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// What a server asks while its call is a task stands in the task's
// inputRequests, and is answered by tasks/update: the client has no request open
// that could end with the question.

// pose puts questions to the client of a task; none means that all are answered.
// answers takes what the client says to some of them; it is called without a
// lock. pose reports false if there is no task: then the request ends with the
// question, and there will be none.
func (j *job) pose(questions []jsonrpc.Member, answers func(responses []byte)) bool {
	if j.pass() {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.phase != working && j.phase != inputRequired {
		return false
	}
	fresh := false
	for _, q := range questions {
		fresh = fresh || !j.keys[q.Key]
		j.keys[q.Key] = true
	}
	if len(questions) == len(j.inputs) && !fresh {
		return true
	}
	j.restLocked()
	j.phase, j.answers, j.inputs, j.updated, j.message = working, answers, questions, time.Now(), ""
	if len(questions) > 0 {
		j.phase = inputRequired
		j.timer = time.AfterFunc(j.h.o.QuestionTimeout, j.unanswered)
	}
	j.announceLocked()
	return true
}

// unanswered ends a task whose question nobody has answered in time.
func (j *job) unanswered() {
	j.mu.Lock()
	stop, waits := j.stop, j.phase == inputRequired
	j.mu.Unlock()
	if !waits {
		return
	}
	const why = "nobody answered the server's question in time (--question-timeout)"
	j.h.tell("task cancelled", "tools/call", observe.QuestionTimeout)
	j.end(failed, []byte(`{"code":-32603,"message":"`+why+`","data":{"outcome":"cancelled"}}`), why)
	if stop != nil {
		stop(why)
	}
}

// update takes the client's answers. Those to nothing that is asked are ignored
// (SEP-2663, "Task Update Requests").
func (j *job) update(responses []byte) {
	var known []jsonrpc.Member
	j.mu.Lock()
	answers := j.answers
	for _, m := range jsonrpc.Members(responses) {
		open := slices.ContainsFunc(j.inputs, func(q jsonrpc.Member) bool { return q.Key == m.Key })
		if open && len(m.Value) > 0 && m.Value[0] == '{' {
			known = append(known, m)
		}
	}
	waits := j.phase == inputRequired
	j.mu.Unlock()
	if waits && len(known) > 0 {
		answers(jsonrpc.AppendObject(nil, nil, nil, known...))
	}
}

// pause is a task whose execution has ended with an input_required result. It
// goes on with a retry, once all answers are there (2026-07-28
// basic/patterns/mrtr).
type pause struct {
	job   *job
	state []byte            // requestState, nil for none
	names map[string]string // the server's keys by the task's
	open  []jsonrpc.Member
	said  []jsonrpc.Member
}

// pause takes such a result.
func (j *job) pause(result []byte) {
	p := &pause{job: j, state: bytes.Clone(jsonrpc.Get(result, "requestState")), names: map[string]string{}}
	j.mu.Lock()
	j.rounds++
	rounds := j.rounds
	for _, q := range jsonrpc.Members(jsonrpc.Get(result, "inputRequests")) {
		key := q.Key // of which a task must not use one twice; a server may, in two rounds
		for n := 2; j.keys[key]; n++ {
			key = q.Key + "-" + strconv.Itoa(n)
		}
		p.names[key] = q.Key
		p.open = append(p.open, jsonrpc.Member{Key: key, Value: bytes.Clone(q.Value)})
	}
	j.mu.Unlock()
	switch {
	case rounds > maxPauses:
		j.end(failed, []byte(`{"code":-32603,"message":"the server asks and asks","data":{"outcome":"unknown"}}`), "the server asks and asks")
	case len(p.open) == 0: // only state to be carried back
		p.retry()
	default:
		j.pose(slices.Clone(p.open), p.answer)
	}
}

// maxPauses bounds how often a server may end one task's request with questions.
const maxPauses = 64

// answer takes some of the client's answers.
func (p *pause) answer(responses []byte) {
	j := p.job
	j.mu.Lock()
	p.open = slices.DeleteFunc(p.open, func(q jsonrpc.Member) bool {
		response := jsonrpc.Get(responses, q.Key)
		if response == nil {
			return false
		}
		p.said = append(p.said, jsonrpc.Member{Key: p.names[q.Key], Value: bytes.Clone(response)})
		return true
	})
	open := slices.Clone(p.open)
	j.mu.Unlock()
	if j.pose(open, p.answer) && len(open) == 0 {
		p.retry()
	}
}

// retry sends the call again, with the answers.
func (p *pause) retry() {
	j := p.job
	j.mu.Lock()
	request := j.request
	j.mu.Unlock()
	if request == nil { // it has ended meanwhile
		return
	}
	var set []jsonrpc.Member
	if len(p.said) > 0 {
		set = append(set, jsonrpc.Member{Key: "inputResponses", Value: jsonrpc.AppendObject(nil, nil, nil, p.said...)})
	}
	if p.state != nil {
		set = append(set, jsonrpc.Member{Key: "requestState", Value: p.state})
	}
	params := jsonrpc.AppendObject(nil, request.Raw(jsonrpc.Params), []string{"inputResponses", "requestState"}, set...)
	m, err := jsonrpc.Parse(request.Append(nil, jsonrpc.Edit{Field: jsonrpc.Params, With: params}))
	if err != nil {
		return // it was put together of parts that were parsed
	}
	a, fail := parse(Request{Principal: j.principal, Message: m, Emit: j.emit})
	if fail != nil {
		return
	}
	a.job, a.token = j, heldToken
	a.keep()
	stop := j.h.execute(a)
	j.mu.Lock()
	over := j.phase.ended()
	if !over {
		j.stop = stop
	}
	j.mu.Unlock()
	if over {
		stop("the task was cancelled")
	}
}
