package exchange

import (
	"crypto/rand"
	"encoding/json"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// FuzzRequestState: no state but the one that was given out is accepted, of
// nobody but its owner, for no other request. The text that is tried is the
// true one with a part cut out and another put in.
func FuzzRequestState(f *testing.F) {
	h := New(Options{Seal: sealOf(f, rand.Text()[:16]), QuestionTimeout: time.Hour})
	const params = `{"name":"x","arguments":{"n":1}}`
	request := func(principal, params string) *asked {
		m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`))
		if err != nil {
			return nil
		}
		return &asked{method: "tools/call", principal: principal, message: m}
	}
	owner := request("ann", params)
	r := &run{h: h, id: "run", round: 3, digest: digest(owner)}
	genuine := h.seal(r, owner)
	f.Add(uint16(0), uint16(0), "", "ann", params)
	f.Add(uint16(0), uint16(0), "", "eve", params)
	f.Add(uint16(0), uint16(0), "", "ann", `{"name":"y"}`)
	f.Add(uint16(0), uint16(0), "", "ann", ` { "arguments" : {"n": 1} , "name":"x","_meta":{"a":1},"inputResponses":{},"requestState":"z"}`)
	f.Add(uint16(10), uint16(1), "A", "ann", params)
	f.Add(uint16(10), uint16(0), "\r\n", "ann", params)
	f.Add(uint16(len(genuine)), uint16(0), "=", "ann", params)
	f.Add(uint16(len(genuine)-1), uint16(1), "A", "ann", params)
	f.Add(uint16(0), uint16(60000), "", "ann", params)
	f.Add(uint16(0), uint16(60000), "eyJyIjoicnVuIn0", "ann", params)
	f.Add(uint16(0), uint16(60000), `{"r":"run","n":3}`, "", `null`)
	f.Fuzz(func(t *testing.T, at, drop uint16, insert, principal, params string) {
		a := request(principal, params)
		if a == nil {
			return
		}
		from := int(at) % (len(genuine) + 1)
		to := min(from+int(drop), len(genuine))
		raw, err := json.Marshal(genuine[:from] + insert + genuine[to:])
		if err != nil {
			return
		}
		for _, tried := range [][]byte{raw, []byte(insert)} {
			var text string
			same := json.Unmarshal(tried, &text) == nil && text == genuine
			right := same && principal == "ann" && digest(a) == r.digest
			run, round, err := h.unseal(tried, a)
			if accepted := err == nil; accepted != right || accepted && (run != "run" || round != 3) {
				t.Errorf("%s by %q for %s: run %q, round %d, %v; want it accepted: %v", tried, principal, params, run, round, err, right)
			}
		}
	})
}

// TestStateExpires after the time that a question may take.
func TestStateExpires(t *testing.T) {
	on(t, troupe{Troupe: actors(nil)}, func(t *testing.T, s *stage) {
		m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`))
		if err != nil {
			t.Fatal(err)
		}
		a := &asked{method: "tools/call", principal: "ann", message: m}
		state := `"` + s.host.seal(&run{h: s.host, id: "run", round: 1, digest: digest(a)}, a) + `"`
		time.Sleep(s.host.o.QuestionTimeout - time.Second)
		if _, _, err := s.host.unseal([]byte(state), a); err != nil {
			t.Errorf("in time: %v", err)
		}
		time.Sleep(2 * time.Second)
		if _, _, err := s.host.unseal([]byte(state), a); err == nil {
			t.Error("it is accepted for good")
		}
	})
}
