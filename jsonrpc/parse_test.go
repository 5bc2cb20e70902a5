package jsonrpc

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestParseKind(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     Kind
	}{
		{"request", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, Request},
		{"request with null params", `{"jsonrpc":"2.0","id":1,"method":"ping","params":null}`, Request},
		{"request with an array of params", `{"jsonrpc":"2.0","id":1,"method":"x","params":[1]}`, Request},
		{"request in any order", `{"params":{},"method":"x","id":"a","jsonrpc":"2.0"}`, Request},
		{"notification", `{"jsonrpc":"2.0","method":"notifications/x"}`, Notification},
		{"result", `{"jsonrpc":"2.0","id":1,"result":{}}`, Response},
		{"null result", `{"jsonrpc":"2.0","id":1,"result":null}`, Response},
		{"error", `{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":""}}`, Response},
		{"error without an id", `{"jsonrpc":"2.0","error":{"code":-1,"message":""}}`, Response},
		{"error with a null id", `{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":""}}`, Response},
		{"white space around", " \t\r\n{\"jsonrpc\":\"2.0\",\"method\":\"x\"}\r\n ", Notification},
		{"unknown members", `{"jsonrpc":"2.0","method":"x","a":[{"id":1,"method":2}],"b":{"method":1}}`, Notification},
		{"method as a parameter", `{"jsonrpc":"2.0","id":1,"result":{"method":"x","id":7}}`, Response},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, err := Parse([]byte(tc.in))
			if err != nil {
				t.Fatal(err)
			}
			if m.Kind() != tc.want {
				t.Errorf("kind %d, want %d", m.Kind(), tc.want)
			}
			if got := string(m.Bytes()); got != strings.TrimSpace(tc.in) {
				t.Errorf("bytes changed to %q", got)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     error
	}{
		{"nothing", ``, ErrSyntax},
		{"white space only", " \n", ErrSyntax},
		{"cut", `{"jsonrpc":"2.0","id":1`, ErrSyntax},
		{"two messages", `{"jsonrpc":"2.0","method":"x"}{}`, ErrSyntax},
		{"comma before the end", `{"jsonrpc":"2.0","method":"x",}`, ErrSyntax},
		{"bare key", `{jsonrpc:"2.0"}`, ErrSyntax},
		{"leading zero", `{"jsonrpc":"2.0","method":"x","a":01}`, ErrSyntax},
		{"plus sign", `{"jsonrpc":"2.0","method":"x","a":+1}`, ErrSyntax},
		{"no digit after the point", `{"jsonrpc":"2.0","method":"x","a":1.}`, ErrSyntax},
		{"no digit in the exponent", `{"jsonrpc":"2.0","method":"x","a":1e}`, ErrSyntax},
		{"NaN", `{"jsonrpc":"2.0","method":"x","a":NaN}`, ErrSyntax},
		{"raw newline in a string", "{\"jsonrpc\":\"2.0\",\"method\":\"x\ny\"}", ErrSyntax},
		{"unknown escape", `{"jsonrpc":"2.0","method":"\q"}`, ErrSyntax},
		{"short \\u", `{"jsonrpc":"2.0","method":"\u12"}`, ErrSyntax},
		{"invalid UTF-8", "{\"jsonrpc\":\"2.0\",\"method\":\"\xff\"}", ErrSyntax},
		{"UTF-8 of a surrogate", "{\"jsonrpc\":\"2.0\",\"method\":\"\xed\xa0\x80\"}", ErrSyntax},
		{"byte order mark", "\ufeff{\"jsonrpc\":\"2.0\",\"method\":\"x\"}", ErrSyntax},
		{"text", `ready`, ErrSyntax},
		{"a batch", `[{"jsonrpc":"2.0","method":"x"}]`, ErrBatch},
		{"a string", `"x"`, ErrInvalid},
		{"a number", `1`, ErrInvalid},
		{"null", `null`, ErrInvalid},
		{"empty object", `{}`, ErrInvalid},
		{"no version", `{"id":1,"method":"x"}`, ErrInvalid},
		{"version 1.0", `{"jsonrpc":"1.0","id":1,"method":"x"}`, ErrInvalid},
		{"version as a number", `{"jsonrpc":2.0,"id":1,"method":"x"}`, ErrInvalid},
		{"method as a number", `{"jsonrpc":"2.0","id":1,"method":1}`, ErrInvalid},
		{"params as a string", `{"jsonrpc":"2.0","id":1,"method":"x","params":"y"}`, ErrInvalid},
		{"null id in a request", `{"jsonrpc":"2.0","id":null,"method":"x"}`, ErrInvalid},
		{"id is an object", `{"jsonrpc":"2.0","id":{},"method":"x"}`, ErrInvalid},
		{"id is true", `{"jsonrpc":"2.0","id":true,"method":"x"}`, ErrInvalid},
		{"id is a fraction", `{"jsonrpc":"2.0","id":1.5,"method":"x"}`, ErrInvalid},
		{"id is absurdly long", `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 2000) + `","method":"x"}`, ErrInvalid},
		{"method and result", `{"jsonrpc":"2.0","id":1,"method":"x","result":1}`, ErrInvalid},
		{"method and error", `{"jsonrpc":"2.0","method":"x","error":{}}`, ErrInvalid},
		{"result and error", `{"jsonrpc":"2.0","id":1,"result":1,"error":{}}`, ErrInvalid},
		{"neither", `{"jsonrpc":"2.0","id":1}`, ErrInvalid},
		{"result without an id", `{"jsonrpc":"2.0","result":1}`, ErrInvalid},
		{"result with a null id", `{"jsonrpc":"2.0","id":null,"result":1}`, ErrInvalid},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, err := Parse([]byte(tc.in))
			if !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
			if object := strings.HasPrefix(tc.in, "{"); errors.Is(err, ErrInvalid) && object != (m != nil) {
				t.Errorf("message returned: %v, an object: %v", m != nil, object)
			}
		})
	}
}

// TestDuplicates: C51. Every member that a decision is taken on may stand once.
func TestDuplicates(t *testing.T) {
	for _, in := range []string{
		`{"jsonrpc":"2.0","jsonrpc":"2.0","method":"x"}`,
		`{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}`,
		`{"jsonrpc":"2.0","method":"x","method":"y"}`,
		`{"jsonrpc":"2.0","method":"x","\u006dethod":"y"}`,
		`{"jsonrpc":"2.0","method":"x","params":{},"params":{}}`,
		`{"jsonrpc":"2.0","method":"x","params":null,"params":{"name":"a"}}`,
		`{"jsonrpc":"2.0","id":1,"result":1,"result":2}`,
		`{"jsonrpc":"2.0","id":1,"error":{},"error":{}}`,
		`{"jsonrpc":"2.0","method":"x","params":{"name":"a","name":"b"}}`,
		`{"jsonrpc":"2.0","method":"x","params":{"name":"a","n\u0061me":"b"}}`,
		`{"jsonrpc":"2.0","method":"x","params":{"uri":"a","uri":"b"}}`,
		`{"jsonrpc":"2.0","method":"x","params":{"requestId":1,"requestId":2}}`,
		`{"jsonrpc":"2.0","method":"x","params":{"_meta":{},"_meta":{}}}`,
		`{"jsonrpc":"2.0","method":"x","params":{"_meta":{"progressToken":1,"progressToken":2}}}`,
	} {
		if _, err := Parse([]byte(in)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", in, err)
		}
	}
	for _, in := range []string{ // whoever may hold these twice, it is not ours to judge
		`{"jsonrpc":"2.0","method":"x","a":1,"a":2}`,
		`{"jsonrpc":"2.0","method":"x","params":{"arguments":{"name":1,"name":2},"x":{"_meta":1}}}`,
		`{"jsonrpc":"2.0","method":"x","params":{"name":"a","arguments":{"name":"b","_meta":{"progressToken":1}}}}`,
	} {
		if _, err := Parse([]byte(in)); err != nil {
			t.Errorf("%s: %v", in, err)
		}
	}
}

// TestKeysAreExact: C51. A decoder that folds case would see other members,
// the long s among them, which folds to s.
func TestKeysAreExact(t *testing.T) {
	for _, in := range []string{
		`{"jsonrpc":"2.0","id":1,"Method":"evil"}`,
		`{"jsonrpc":"2.0","id":1,"METHOD":"evil"}`,
		"{\"j\u017fonrpc\":\"2.0\",\"id\":1,\"method\":\"evil\"}",
		`{"JSONRPC":"2.0","id":1,"method":"evil"}`,
	} {
		if _, err := Parse([]byte(in)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", in, err)
		}
	}
	in := "{\"jsonrpc\":\"2.0\",\"ID\":5,\"id\":1,\"method\":\"tools/call\",\"Method\":\"evil\"," +
		"\"param\u017f\":{\"name\":\"secret\"},\"param\\u017f\":{\"name\":\"secret\"}," +
		"\"params\":{\"Name\":\"secret\",\"name\":\"allowed\",\"\u006eAME\":\"secret\"}}"
	m, err := Parse([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	for f, want := range map[Field]string{Method: "tools/call", Name: "allowed"} {
		if got := string(m.Text(f)); got != want {
			t.Errorf("field %d is %q, want %q", f, got, want)
		}
	}
	if got := string(m.Append(nil, Edit{ID, []byte("2")})); got != strings.Replace(in, `"id":1`, `"id":2`, 1) {
		t.Errorf("case variants did not arrive as they were: %s", got)
	}
}

func TestFields(t *testing.T) {
	in := `{"jsonrpc":"2.0","id":"i","method":"m/x","params":{"name":"n\u0061","uri":"u","level":"l","requestId":7,` +
		`"protocolVersion":"v","progressToken":8,"_meta":{"progressToken":"t\"","io.modelcontextprotocol/protocolVersion":"w",` +
		`"name":"not this"},"arguments":{"name":"nor this","uri":"nor this"}}}`
	m, err := Parse([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		field     Field
		raw, text string
	}{
		{Version, `"2.0"`, "2.0"},
		{ID, `"i"`, "i"},
		{Method, `"m/x"`, "m/x"},
		{Name, `"n\u0061"`, "na"},
		{URI, `"u"`, "u"},
		{Level, `"l"`, "l"},
		{RequestID, `7`, ""},
		{ProtocolVersion, `"v"`, "v"},
		{Token, `8`, ""},
		{MetaToken, `"t\""`, `t"`},
		{MetaVersion, `"w"`, "w"},
		{Result, "", ""},
		{Error, "", ""},
	} {
		if got := string(m.Raw(tc.field)); got != tc.raw {
			t.Errorf("field %d is %s, want %s", tc.field, got, tc.raw)
		}
		if got := string(m.Text(tc.field)); got != tc.text {
			t.Errorf("field %d reads %q, want %q", tc.field, got, tc.text)
		}
		if m.Has(tc.field) != (tc.raw != "") {
			t.Errorf("Has(%d) = %v", tc.field, m.Has(tc.field))
		}
	}
	if !m.Is("m/x") || m.Is("M/x") || m.Is("") {
		t.Error("Is does not compare exactly")
	}
	if m, err := Parse([]byte(`{"jsonrpc":"2.0","\u006dethod":"pi\u006eg"}`)); err != nil || !m.Is("ping") {
		t.Errorf("escapes in a key and a method: %v", err)
	}
}

// TestLegalIDs: C44.
func TestLegalIDs(t *testing.T) {
	legal := []string{`0`, `-1`, `-0`, `1`, `""`, `"0"`, `"init-1"`, `"\u0000"`, `9007199254740992`, `9007199254740993`,
		`18446744073709551615`, `123456789012345678901234567890`, `1e3`, `1E+3`, `1.0`, `2.000e5`,
		`"` + strings.Repeat("x", 1022) + `"`}
	for _, id := range legal {
		m, err := Parse([]byte(`{"jsonrpc":"2.0","id":` + id + `,"method":"x"}`))
		if err != nil {
			t.Errorf("id %.40s: %v", id, err)
			continue
		}
		if got := string(m.LegalID()); got != id {
			t.Errorf("id %.40s became %.40s", id, got)
		}
		if got := string(AppendResult(nil, m.LegalID(), []byte("{}"))); got != `{"jsonrpc":"2.0","id":`+id+`,"result":{}}` {
			t.Errorf("answer to %.40s: %.80s", id, got)
		}
	}
	for _, id := range []string{`1.5`, `1e-3`, `null`, `true`, `[]`, `{}`, `-1.01`} {
		m, err := Parse([]byte(`{"jsonrpc":"2.0","id":` + id + `,"method":"x"}`))
		if !errors.Is(err, ErrInvalid) || m.LegalID() != nil {
			t.Errorf("id %s: %v, legal %s", id, err, m.LegalID())
		}
	}
}

func TestDeepNesting(t *testing.T) {
	nest := func(open, shut string, n int) string {
		return `{"jsonrpc":"2.0","method":"x","params":{"a":` + strings.Repeat(open, n) + "1" + strings.Repeat(shut, n) + `}}`
	}
	for _, tc := range []struct {
		n    int
		want error
	}{{1, nil}, {500, nil}, {513, ErrSyntax}, {100_000, ErrSyntax}, {1_000_000, ErrSyntax}} {
		for _, in := range []string{nest("[", "]", tc.n), nest(`{"a":`, "}", tc.n), nest(`{"_meta":`, "}", tc.n)} {
			if _, err := Parse([]byte(in)); !errors.Is(err, tc.want) {
				t.Errorf("%d levels of %.40s: %v, want %v", tc.n, in[37:], err, tc.want)
			}
		}
	}
	if _, err := Split([]byte(strings.Repeat("[", 1_000_000))); !errors.Is(err, ErrSyntax) {
		t.Errorf("a batch without a bottom: %v", err)
	}
	if id, _ := PeekID([]byte(`{"id":1,"result":` + strings.Repeat("[", 1_000_000))); string(id) != "1" {
		t.Errorf("PeekID before a deep result: %s", id)
	}
}

// TestStringsOfAllLengths puts each byte that ends or changes the course of
// the word-wise scan at each place of a word.
func TestStringsOfAllLengths(t *testing.T) {
	for n := range 40 {
		pad := strings.Repeat("a", n)
		for _, tail := range []string{"", `\"`, `\\`, `\n`, `\u00e9`, "é", "\u2028", "\x7f", "\x00", "\x1f", "\t", "\xff", "\xc3", `\x`, `\`} {
			in := []byte(`{"jsonrpc":"2.0","method":"` + pad + tail + pad + `"}`)
			_, err := Parse(in)
			if want := json.Valid(in) && utf8.Valid(in); (err == nil) != want {
				t.Errorf("%d bytes, then %q: %v", n, tail, err)
			}
		}
	}
}

func TestSplit(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want []string
		err  error
	}{
		{`[{"a":1}]`, []string{`{"a":1}`}, nil},
		{" [\n{\"a\":[1,2]} ,\t\"x,]\" , 3 ]\n", []string{`{"a":[1,2]}`, `"x,]"`, `3`}, nil},
		{`[[],{}]`, []string{`[]`, `{}`}, nil},
		{`[]`, nil, ErrInvalid},
		{` [ ] `, nil, ErrInvalid},
		{`[1,]`, nil, ErrSyntax},
		{`[1 2]`, nil, ErrSyntax},
		{`[1]x`, nil, ErrSyntax},
		{`[1`, nil, ErrSyntax},
		{`[`, nil, ErrSyntax},
		{`{}`, nil, ErrSyntax},
		{``, nil, ErrSyntax},
	} {
		got, err := Split([]byte(tc.in))
		if !errors.Is(err, tc.err) || fmt.Sprintf("%s", got) != fmt.Sprintf("%s", tc.want) {
			t.Errorf("%q: %s, %v; want %s, %v", tc.in, got, err, tc.want, tc.err)
		}
	}
	each, err := Split([]byte(`[1,2]`))
	if err != nil {
		t.Fatal(err)
	}
	_ = append(each[0], 'x') // must not reach into what follows
	if string(each[1]) != "2" {
		t.Errorf("an append to one element changed the next: %s", each[1])
	}
}

func TestPeekID(t *testing.T) {
	long := strings.Repeat("x", 100)
	for _, tc := range []struct {
		name, head string
		id         string
		response   bool
	}{
		{"result", `{"jsonrpc":"2.0","id":7,"result":{"a":"` + long, "7", true},
		{"error", `{"jsonrpc":"2.0","id":"a","error":{"code":1,"message":"` + long, `"a"`, true},
		{"result before the id", `{"result":{"a":1},"id":7,"x":"` + long, "7", true},
		{"request", `{"jsonrpc":"2.0","id":7,"method":"x","params":{"a":"` + long, "7", false},
		{"request, params first", `{"jsonrpc":"2.0","id":7,"params":{"a":"` + long, "7", false},
		{"whole request", `{"jsonrpc":"2.0","id":7,"method":"x"}`, "7", false},
		{"notification", `{"jsonrpc":"2.0","method":"x","params":{"a":"` + long, "", false},
		{"id behind the long part", `{"jsonrpc":"2.0","result":"` + long, "", false},
		{"neither result nor method yet", `{"jsonrpc":"2.0","id":7,"x":"` + long, "", false},
		{"id cut", `{"jsonrpc":"2.0","id":7`, "", false},
		{"string id cut", `{"jsonrpc":"2.0","id":"abc`, "", false},
		{"method cut", `{"jsonrpc":"2.0","id":7,"method":"to`, "7", false},
		{"illegal id", `{"jsonrpc":"2.0","id":null,"result":"` + long, "", false},
		{"id of an inner object", `{"result":{"id":9,"x":"` + long, "", false},
		{"no object", `[{"id":1,"result":"` + long, "", false},
		{"text", long, "", false},
		{"nothing", ``, "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			id, response := PeekID([]byte(tc.head))
			if string(id) != tc.id || response != tc.response {
				t.Errorf("got %q, response %v; want %q, %v", id, response, tc.id, tc.response)
			}
		})
	}
}
