package exchange

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// A server of revision 2025-11-25 may answer a call with an error that says which
// URLs the user must open before the call can be processed (client/elicitation,
// "URL Elicitation Required Error"). It has not executed the call then. To a
// stateless client that is a question like any other, and its retry a second
// call on the same conversation.

// maxURLs bounds the URLs of one such error, maxURLRounds how often one call may
// meet with it.
const (
	maxURLs      = 16
	maxURLRounds = 16
)

// elicitURLs asks the client for what an answer of the server wants it to open.
// It reports false if the answer is not of that kind, or the client cannot be
// asked: then it is an answer like any other.
func (r *run) elicitURLs(answer []byte) bool {
	urls := r.urls(answer)
	if urls == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended || r.asked == nil || r.round >= maxURLRounds {
		return false
	}
	r.open = nil // what the call asked before is over with it
	for _, params := range urls {
		r.count++
		r.open = append(r.open, question{key: "q" + strconv.Itoa(r.count), method: "elicitation/create", params: params})
	}
	r.refused = bytes.Clone(answer)
	r.askLocked(0)
	return true
}

// urls returns the params of the elicitations that an answer demands, nil if it
// demands none that can be put to the client.
func (r *run) urls(answer []byte) [][]byte {
	if !era.MayAsk(r.method) || !bytes.Contains(answer, strconv.AppendInt(nil, era.CodeURLElicitation, 10)) { // most are not
		return nil
	}
	m, err := jsonrpc.Parse(answer)
	if err != nil {
		return nil
	}
	fault := m.Raw(jsonrpc.Error)
	if string(jsonrpc.Get(fault, "code")) != strconv.Itoa(era.CodeURLElicitation) {
		return nil
	}
	var list []json.RawMessage
	if json.Unmarshal(jsonrpc.Get(jsonrpc.Get(fault, "data"), "elicitations"), &list) != nil || len(list) > maxURLs {
		return nil
	}
	var out [][]byte
	for _, params := range list {
		if string(jsonrpc.Get(params, "mode")) != `"url"` || refuses(r.lane.g.capabilities, "elicitation/create", params) != "" {
			return nil
		}
		out = append(out, jsonrpc.AppendObject(nil, params, []string{"elicitationId"}))
	}
	return out
}

// openedLocked takes what a retry says about the URLs. refused is the error that
// the call ends with if the user does not want to open them; again says that all
// are opened, so that the server is to be called once more.
func (r *run) openedLocked(responses []byte) (refused []byte, again bool) {
	if r.refused == nil {
		return nil, false
	}
	declined := false
	r.open = slices.DeleteFunc(r.open, func(q question) bool {
		action := jsonrpc.Get(jsonrpc.Get(responses, q.key), "action")
		if q.id != nil || action == nil {
			return false
		}
		declined = declined || string(action) != `"accept"`
		return true
	})
	waits := slices.ContainsFunc(r.open, func(q question) bool { return q.id == nil })
	switch {
	case declined:
		refused, r.refused = r.refused, nil
	case !waits:
		r.refused, again = nil, true
	}
	return refused, again
}
