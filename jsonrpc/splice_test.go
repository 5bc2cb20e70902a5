package jsonrpc

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

func parse(t testing.TB, in string) *Message {
	t.Helper()
	m, err := Parse([]byte(in))
	if err != nil {
		t.Fatalf("%.200s: %v", in, err)
	}
	return m
}

func TestAppend(t *testing.T) {
	const call = `{"id":"a b", "jsonrpc":"2.0","method":"tools/call","params":{"_meta":{"progressToken":"t","k":1.0},` +
		`"name":"x","arguments":{"id":1,"big":18446744073709551616,"n":1e400}},"unknown":[1, 2]}`
	for _, tc := range []struct {
		name, in string
		edits    []Edit
		want     string
	}{
		{"no edit", call, nil, call},
		{"id", call, []Edit{{ID, []byte(`5`)}}, strings.Replace(call, `"a b"`, `5`, 1)},
		{
			"id and token", call, []Edit{{ID, []byte(`5`)}, {MetaToken, []byte(`5`)}},
			strings.Replace(strings.Replace(call, `"a b"`, `5`, 1), `"t"`, `5`, 1),
		},
		{
			"in the other order", call, []Edit{{MetaToken, []byte(`6`)}, {ID, []byte(`5`)}},
			strings.Replace(strings.Replace(call, `"a b"`, `5`, 1), `"t"`, `6`, 1),
		},
		{
			"the id behind the token", `{"params":{"_meta":{"progressToken":1}},"method":"x","id":2,"jsonrpc":"2.0"}`,
			[]Edit{{ID, []byte(`"22"`)}, {MetaToken, []byte(`"11"`)}},
			`{"params":{"_meta":{"progressToken":"11"}},"method":"x","id":"22","jsonrpc":"2.0"}`,
		},
		{"what is not there", `{"jsonrpc":"2.0","method":"x"}`, []Edit{{ID, []byte(`1`)}, {MetaToken, []byte(`2`)}}, `{"jsonrpc":"2.0","method":"x"}`},
		{"one that is and one that is not", `{"jsonrpc":"2.0","id":1,"method":"x"}`, []Edit{{MetaToken, []byte(`2`)}, {ID, []byte(`3`)}}, `{"jsonrpc":"2.0","id":3,"method":"x"}`},
		{"spaces and tabs stay", "{ \"jsonrpc\" :\t\"2.0\", \"method\": \"x\" }", nil, "{ \"jsonrpc\" :\t\"2.0\", \"method\": \"x\" }"},
		{"white space around goes", "\r\n\t {\"jsonrpc\": \"2.0\", \"method\":\"x\"} \r\n", nil, `{"jsonrpc": "2.0", "method":"x"}`},
		{
			"pretty-printed", "{\n  \"jsonrpc\": \"2.0\",\r\n  \"id\": 1,\n\n  \"method\": \"a\\nb  c\",\n  \"params\": {}\n}",
			[]Edit{{ID, []byte(`2`)}}, `{"jsonrpc": "2.0","id": 2,"method": "a\nb  c","params": {}}`,
		},
		{"newlines beside the edit", "{\"jsonrpc\":\"2.0\",\"id\":\n1\n,\"method\":\"x\"}", []Edit{{ID, []byte(`2`)}}, `{"jsonrpc":"2.0","id":2,"method":"x"}`},
		{"white space before the message", "\n\n {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\"}", []Edit{{ID, []byte(`22`)}}, `{"jsonrpc":"2.0","id":22,"method":"x"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := parse(t, tc.in)
			got := m.Append([]byte("before"), tc.edits...)
			if string(got) != "before"+tc.want {
				t.Errorf("got  %s\nwant %s", got[len("before"):], tc.want)
			}
			if bound := m.Len(tc.edits...); bound < len(got)-len("before") {
				t.Errorf("Len is %d, Append made %d", bound, len(got)-len("before"))
			}
		})
	}
}

func TestAppendError(t *testing.T) {
	for _, tc := range []struct {
		id, data []byte
		text     string
		want     string
	}{
		{[]byte(`"a"`), nil, `no "x"`, `{"jsonrpc":"2.0","id":"a","error":{"code":-32603,"message":"no \"x\""}}`},
		{nil, nil, "x", `{"jsonrpc":"2.0","error":{"code":-32603,"message":"x"}}`},
		{[]byte(`1`), []byte(`{"a":1.0}`), "", `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"","data":{"a":1.0}}}`},
	} {
		got := string(AppendError(nil, tc.id, CodeInternal, tc.text, tc.data))
		if got != tc.want {
			t.Errorf("got  %s\nwant %s", got, tc.want)
		}
		if m := parse(t, got); m.Kind() != Response || !m.Has(Error) {
			t.Errorf("%s is no error answer", got)
		}
	}
}

// TestAppendString compares with encoding/json, which may escape more but must
// read the same.
func TestAppendString(t *testing.T) {
	inputs := []string{"", "a", `"\/`, "<a>&b", "\x00\x01\x1f\x7f", "\t\r\n\b\f", "é\u2028\u2029😀", "\xff", "a\xc3", "\xed\xa0\x80", "\ufffd"}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		b := make([]byte, rnd.IntN(20))
		for i := range b {
			b[i] = byte(rnd.IntN(256))
		}
		inputs = append(inputs, string(b))
	}
	for _, in := range inputs {
		got := AppendString(nil, in)
		var ours, theirs string
		std, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(got, &ours); err != nil {
			t.Errorf("%q became %s: %v", in, got, err)
			continue
		}
		if err := json.Unmarshal(std, &theirs); err != nil {
			t.Fatal(err)
		}
		if ours != theirs || !utf8.Valid(got) {
			t.Errorf("%q became %s, read as %q instead of %q", in, got, ours, theirs)
		}
	}
	if got := string(AppendString(nil, "<a>&b\u2028")); got != "\"<a>&b\u2028\"" {
		t.Errorf("escaped what need not be: %s", got)
	}
}

func TestAskForProgress(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`{"name":"x"}`, `{"_meta":{"progressToken":7},"name":"x"}`},
		{`{ }`, `{"_meta":{"progressToken":7} }`},
		{`{"name":"x","_meta":{"a":[1]},"arguments":{"_meta":{}}}`, `{"name":"x","_meta":{"progressToken":7,"a":[1]},"arguments":{"_meta":{}}}`},
		{`{"_meta":{},"name":"x"}`, `{"_meta":{"progressToken":7},"name":"x"}`},
		{`{"_meta":{"progressToken":null},"name":"x"}`, `{"_meta":{"progressToken":7},"name":"x"}`},
		{`{"_meta":{"progressToken":"mine"}}`, `{"_meta":{"progressToken":7}}`},
		{`{"_meta":3}`, ""},
		{`[1]`, ""},
	} {
		m, err := Parse([]byte(` {"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + c.in + `} `))
		if err != nil {
			t.Fatal(err)
		}
		edit, ok := m.Ask([]byte("7"))
		if ok != (c.want != "") {
			t.Fatalf("%s: ok = %v", c.in, ok)
		}
		if !ok {
			continue
		}
		got := string(m.Append(nil, edit, Edit{Field: ID, With: []byte("99")}))
		if want := `{"jsonrpc":"2.0","id":99,"method":"tools/call","params":` + c.want + `}`; got != want {
			t.Errorf("%s:\n got %s\nwant %s", c.in, got, want)
		}
		if _, err := Parse([]byte(got)); err != nil {
			t.Errorf("%s: %v", got, err)
		}
		// The id may come last, as with the official TypeScript SDK.
		m = parse(t, `{"method":"tools/call","params":`+c.in+`,"jsonrpc":"2.0","id":1}`)
		edit, _ = m.Ask([]byte("7"))
		for _, edits := range [][]Edit{{edit, {Field: ID, With: []byte("99")}}, {{Field: ID, With: []byte("99")}, edit}} {
			if got, want := string(m.Append(nil, edits...)), `{"method":"tools/call","params":`+c.want+`,"jsonrpc":"2.0","id":99}`; got != want {
				t.Errorf("%s:\n got %s\nwant %s", c.in, got, want)
			}
		}
	}
}
