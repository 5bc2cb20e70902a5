package calls_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"sort"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/holdfast-mcp/holdfast/internal/calls"
	"github.com/holdfast-mcp/holdfast/internal/ledger"
)

func TestFingerprintEqual(t *testing.T) {
	for _, test := range []struct{ name, a, b string }{
		{"white space", `{"a":[1,{"b":null}],"c":"d"}`, " {\t\"a\" : [ 1 ,\r\n{ \"b\" : null } ] , \"c\":\"d\" }\n"},
		{"order", `{"a":1,"b":{"c":2,"d":3},"e":[]}`, `{"e":[],"b":{"d":3,"c":2},"a":1}`},
		{"order in an array's objects", `[{"a":1,"b":2}]`, `[{"b":2,"a":1}]`},
		{"escapes", `{"a":"\u0061\/\u00e9\ud83d\ude00\n"}`, `{"\u0061":"a/é😀\u000a"}`},
		{"escaped keys sort as what they mean", `{"\u0062":1,"a":2}`, `{"a":2,"b":1}`},
		{"hexadecimal digits of either case", `"\u00EF"`, `"\u00ef"`},
		{"_meta", `{"name":"x","_meta":{"progressToken":1}}`, `{"_meta":{"progressToken":2,"k":[]},"name":"x"}`},
		{"_meta with escapes", `{"name":"x","\u005fmeta":{}}`, `{"name":"x"}`},
		{"what a retry adds", `{"name":"x","inputResponses":{"a":{}},"requestState":"s"}`, `{"name":"x"}`},
		{"absent params", ``, `{}`},
		{"nothing but _meta", ` `, `{"_meta":{}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if calls.Fingerprint("m", []byte(test.a)) != calls.Fingerprint("m", []byte(test.b)) {
				t.Errorf("%s and %s differ", test.a, test.b)
			}
		})
	}
}

// TestFingerprintDifferent has values of which no two are equal.
func TestFingerprintDifferent(t *testing.T) {
	many := func(order string) string {
		var b strings.Builder
		for i := range 1100 {
			fmt.Fprintf(&b, `"k%d":%d,`, i, i)
		}
		return "{" + b.String() + order + "}"
	}
	deep := strings.Repeat("[", 600) + strings.Repeat("]", 600)
	values := []string{
		`1`, `"1"`, `1.0`, `1e0`, `10`, `-1`, `0`, `-0`, `9007199254740992`, `9007199254740993`,
		`true`, `"true"`, `false`, `null`, `"null"`, `""`, `" "`, `[]`, `[[]]`, `[[],[]]`, `[[[]]]`, `[null]`, `[""]`, `["",""]`,
		`{}`, `[{}]`, `{"a":{}}`, `{"a":[]}`, `{"a":null}`, `{"a":""}`, `{"":"a"}`, `{"a":"b"}`, `{"b":"a"}`, `["a","b"]`, `["b","a"]`, `["ab"]`, `["a:b"]`,
		`[1,2]`, `[12]`, `[1,[2]]`, `[[1],2]`, `[[1,2]]`, `["1,2"]`, `[1,"2"]`,
		`{"a":1,"b":2}`, `{"a":2,"b":1}`, `{"a":{"b":1}}`, `{"a":1,"a":2}`, `{"a":2,"a":1}`, `{"a":2}`, `{"a":1}`, `{"a":1,"a":1}`,
		`{"a":{"b":1},"c":2}`, `{"a":{"b":1,"c":2}}`, `{"a":{"_meta":1}}`, `[{"_meta":1}]`, `{"Meta":1}`,
		`"\ud800"`, `"\ud801"`, `"\udc00"`, `"\ud800a"`, `"\ufffd"`, `"\ud800\ud800"`, `"\udc00\ud800"`, `"\ud800\udc00"`, `"\ud801\udc00"`, `"\\ud800"`,
		`"\u0000"`, `"\\u0000"`, `"a\u0000"`, `"s"`, `"n1;"`, "\"a\\nb\"", `"a\\nb"`,
		many(`"x":1,"y":2`), many(`"y":2,"x":1`), deep, "[" + deep + "]",
		"\"\x80\"", "\"\xed\xa0\x80\"", "\"\n\"", `"`, `"a`, `"\`, `"\u`, `"\u12`, `"\u12g4"`, `"\ud800\u`, `"\x"`, `[`, `[1`, `[1,`, `[1,]`, `[,1]`, `{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{a:1}`, `{1:1}`,
		`{"a":1]`, `[1}`, `1 2`, `{}{}`, `01`, `nul`, `;`, `1;n2`, `-`, `{"_meta":}`, `[1 2]`, `[1n2]`, `[1s2]`,
	}
	seen := map[ledger.Print]string{}
	for _, v := range values {
		p := calls.Fingerprint("m", []byte(v))
		if other, ok := seen[p]; ok {
			t.Errorf("%.40q and %.40q have the same fingerprint", v, other)
		}
		seen[p] = v
	}
	for _, method := range []string{"", "tools/call", "m1;", "ms"} {
		if other, ok := seen[calls.Fingerprint(method, []byte(`1`))]; ok {
			t.Errorf("method %q and %q have the same fingerprint", method, other)
		}
	}
}

// TestFingerprintDepth: the bound is that of the messages.
func TestFingerprintDepth(t *testing.T) {
	nest := func(n int, space string) []byte {
		return []byte(strings.Repeat(`{"a":`+space, n) + "1" + strings.Repeat("}", n))
	}
	if calls.Fingerprint("m", nest(512, "")) != calls.Fingerprint("m", nest(512, " ")) {
		t.Error("512 levels are too many")
	}
	if calls.Fingerprint("m", nest(513, "")) == calls.Fingerprint("m", nest(513, " ")) {
		t.Error("513 levels are not too many")
	}
	calls.Fingerprint("m", bytes.Repeat([]byte("["), 1<<20))
	calls.Fingerprint("m", bytes.Repeat([]byte(`{"":[`), 1<<20))
}

// FuzzFingerprint compares two texts: their fingerprints are equal exactly if
// encoding/json reads the same values from them.
func FuzzFingerprint(f *testing.F) {
	for _, pair := range [][2]string{
		{`{"a":1,"b":[true,{}]}`, `{ "b":[true,{}],"a":1}`}, {`"\u0061"`, `"a"`}, {`[1,2]`, `[12]`},
		{`{"_meta":1}`, `{}`}, {`{"a":1,"a":2}`, `{"a":2}`}, {`"\ud83d\ude00"`, `"😀"`}, {`1.0`, `1`}, {`[`, `{`}, {`"\ud800"`, `"\udbff"`},
	} {
		f.Add([]byte(pair[0]), []byte(pair[1]))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		same := calls.Fingerprint("m", a) == calls.Fingerprint("m", b)
		valueA, okA := oracle(a)
		valueB, okB := oracle(b)
		if okA && okB {
			// encoding/json reads half a surrogate pair as U+FFFD.
			doubt := strings.ContainsRune(valueA, utf8.RuneError)
			if equal := valueA == valueB; same && !equal || equal && !same && !doubt {
				t.Errorf("%q and %q: same fingerprint %v, equal %v", a, b, same, equal)
			}
		} else if same && okA != okB {
			t.Errorf("%q and %q have the same fingerprint, and one is no JSON", a, b)
		}
		// Whatever it is, white space around it and another way to spell it
		// change nothing.
		if okA && calls.Fingerprint("m", a) != calls.Fingerprint("m", append([]byte("\t "), a...)) {
			t.Errorf("%q: white space counts", a)
		}
		if respelled, ok := respell(a); okA && ok && calls.Fingerprint("m", a) != calls.Fingerprint("m", respelled) {
			t.Errorf("%q and %q differ", a, respelled)
		}
	})
}

// oracle returns the value of a JSON text in one spelling.
func oracle(text []byte) (string, bool) {
	if len(bytes.Trim(text, " \t\r\n")) == 0 {
		text = []byte("{}")
	}
	if !json.Valid(text) || !utf8.Valid(text) {
		return "", false
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	s, err := spell(d, 0)
	if err != nil {
		return "", false
	}
	_, err = d.Token()
	return s, err == io.EOF
}

type member struct{ key, value string }

// spell writes the next value with the members of objects sorted by key, those
// with the same key in their order.
func spell(d *json.Decoder, depth int) (string, error) {
	token, err := d.Token()
	if err != nil || depth > 512 {
		return "", fmt.Errorf("depth %d: %w", depth, err)
	}
	switch v := token.(type) {
	case json.Delim:
		var values []string
		var members []member
		for d.More() {
			var m member
			if v == '{' {
				key, err := d.Token()
				if err != nil {
					return "", err
				}
				m.key = key.(string)
			}
			if m.value, err = spell(d, depth+1); err != nil {
				return "", err
			}
			if depth == 0 && (m.key == "_meta" || m.key == "inputResponses" || m.key == "requestState") {
				continue
			}
			members = append(members, m)
		}
		if _, err := d.Token(); err != nil {
			return "", err
		}
		if v == '{' {
			sort.SliceStable(members, func(i, j int) bool { return members[i].key < members[j].key })
		}
		for _, m := range members {
			values = append(values, fmt.Sprintf("%q:%s", m.key, m.value))
		}
		return fmt.Sprintf("%v(%s)", v, strings.Join(values, ",")), nil
	case string:
		return fmt.Sprintf("%q", v), nil
	}
	return fmt.Sprintf("%T %v", token, token), nil
}

// respell returns a JSON text that encoding/json writes for the same value; not
// if that loses members with the same key, or halves of surrogate pairs.
func respell(text []byte) ([]byte, bool) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil, false
	}
	out, err := json.MarshalIndent(v, "", " ")
	if err != nil || bytes.ContainsRune(out, utf8.RuneError) || bytes.Contains(out, []byte(`\ufffd`)) {
		return nil, false
	}
	before, ok1 := oracle(text)
	after, ok2 := oracle(out)
	return out, ok1 && ok2 && before == after
}

const report = `{"name":"build_report","arguments":{"quarter":"2026-Q3","format":"pdf","pages":12,"sections":["sales","costs"]},"_meta":{"progressToken":7}}`

func BenchmarkFingerprint(b *testing.B) {
	params := []byte(report)
	b.ReportAllocs()
	b.SetBytes(int64(len(params)))
	for b.Loop() {
		calls.Fingerprint("tools/call", params)
	}
}

func TestFingerprintAllocations(t *testing.T) {
	params := []byte(report)
	if n := testing.AllocsPerRun(1000, func() { calls.Fingerprint("tools/call", params) }); n > 2 {
		t.Errorf("%v allocations, want 2 at most", n)
	}
}
