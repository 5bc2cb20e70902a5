package conversation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// FuzzDiscover: whatever a server answers the probe with, there is a verdict,
// and it is the right one.
func FuzzDiscover(f *testing.F) {
	for _, seed := range []string{
		discovered, `{}`, `null`, `[]`, `7`, `"x"`, `{"supportedVersions":["2026-07-28"]}`, `{"supportedVersions":"2026-07-28"}`,
		`{"supportedVersions":["2025-11-25"]}`, `{"supported\u0056ersions":["2026\u002d07-28"],"resultType":"complete"}`,
		`{"supportedVersions":["2026-07-28"],"resultType":"weird"}`, `{"supportedVersions":[1,"2026-07-28"]}`,
		`{"supportedVersions":["\"2026-07-28\""]}`, `{"supportedVersions":null,"capabilities":5,"_meta":[]}`,
		`{"supportedVersions":["2026-07-28"],"capabilities":[],"_meta":{"io.modelcontextprotocol/serverInfo":7},"instructions":{}}`,
		`{"code":-32022,"message":"","data":{"supported":["2026-07-28"]}}`, `{"code":-32022,"data":{"supported":["2024-11-05"]}}`,
		`{"supportedVersions":["2026-07-28"],"instructions":1e999}`,
		`{"supportedVersions":["2026-07-28"],"resultTYpe":"other"}`, `{"code":-32020}`, `{"code":-32601}`, `{"code":"x"}`,
	} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, body string, ok bool) {
		member := map[bool]string{true: "result", false: "error"}[ok]
		m, err := jsonrpc.Parse(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,%q:%s}`, member, body))
		if err != nil || m.Has(jsonrpc.Result) != ok || m.Has(jsonrpc.Error) == ok {
			return
		}
		c := &Conversation{ready: make(chan struct{})}
		v, err := c.judge(m, false)
		// A map, since a struct's fields would match names of any case.
		// Numbers stay as they are spelled: some are greater than a float64 can be.
		var said map[string]any
		in := json.NewDecoder(bytes.NewReader(m.Raw(jsonrpc.Result)))
		in.UseNumber()
		sane := in.Decode(&said) == nil
		twice := len(said) != len(jsonrpc.Members(m.Raw(jsonrpc.Result))) // readers disagree about which one counts
		kind, typed := said["resultType"]
		fits := strings.Contains(fmt.Sprintf("%q", said["supportedVersions"]), `"2026-07-28"`)
		switch {
		case ok && v == stateless && !twice && (!sane || !fits || typed && kind != "complete"):
			t.Errorf("%s: stateless", body)
		case ok && v == handshake:
			t.Errorf("%s: a server that has %s is taken for a fresh one", body, body)
		case (err != nil) != (v == undecided):
			t.Errorf("%s: verdict %d, %v", body, v, err)
		case v == stateless && !c.stateless || v != stateless && c.stateless:
			t.Errorf("%s: verdict %d, kept %v", body, v, c.stateless)
		}
		// What the other era is told of it is well-formed, whatever it is.
		hello := introduction(m.Raw(jsonrpc.Result))
		if !json.Valid(hello) || string(jsonrpc.Get(hello, "protocolVersion")) != `"2025-11-25"` || jsonrpc.Members(jsonrpc.Get(hello, "capabilities")) == nil {
			t.Errorf("%s: introduced as %s", body, hello)
		}
	})
}
