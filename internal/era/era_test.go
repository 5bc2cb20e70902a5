package era

import (
	"testing"

	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

func TestOf(t *testing.T) {
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`
	tests := []struct {
		name, message, header string
		want                  Generation
	}{
		{"plain call", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`, "", Handshake},
		{"call with a 2025 header", `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`, "2025-11-25", Handshake},
		{"meta alone", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + meta + `}}`, "", Stateless},
		{"header alone", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "2026-07-28", Stateless},
		{"later header", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "2027-01-01", Stateless},
		{"nonsense header", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "zzz", Handshake},
		{"initialize, modern header", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`, "2026-07-28", Handshake},
		{"initialize with meta", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{` + meta + `}}`, "", Stateless},
		{"discover", `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + meta + `}}`, "2026-07-28", Stateless},
	}
	for _, tt := range tests {
		m, err := jsonrpc.Parse([]byte(tt.message))
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if got := Of(m, tt.header); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestVersions(t *testing.T) {
	for v, want := range map[Version][4]bool{ // handshake, batches, primes, modern
		V20241105:    {true, false, false, false},
		V20250326:    {true, true, false, false},
		V20250618:    {true, false, false, false},
		V20251125:    {true, false, true, false},
		V20260728:    {false, false, false, true},
		"2099-01-01": {false, false, false, true},
		"1999-01-01": {},
		"":           {},
		"latest":     {},
	} {
		if got := [4]bool{v.Handshake(), v.Batches(), v.Primes(), v.Modern()}; got != want {
			t.Errorf("%q: %v, want %v", v, got, want)
		}
	}
	for asked, want := range map[Version]Version{V20250618: V20250618, V20260728: V20251125, "": V20251125, "1.0": V20251125} {
		if got := Negotiate(asked); got != want {
			t.Errorf("Negotiate(%q) = %q, want %q", asked, got, want)
		}
	}
}
