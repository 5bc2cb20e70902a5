package jsonrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"unicode/utf8"
)

// tooDeep reports whether JSON nests near or beyond what Parse takes.
func tooDeep(b []byte) bool {
	depth, in, escaped := 0, false, false
	for _, c := range b {
		switch {
		case escaped:
			escaped = false
		case in && c == '\\':
			escaped = true
		case c == '"':
			in = !in
		case in:
		case c == '[' || c == '{':
			if depth++; depth >= maxDepth {
				return true
			}
		case c == ']' || c == '}':
			depth--
		}
	}
	return false
}

// object decodes an object into its members as they are spelled. Duplicates
// are not seen.
func object(t *testing.T, b []byte) map[string]json.RawMessage {
	t.Helper()
	var out map[string]json.RawMessage
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatalf("%q: %v", b, err)
	}
	return out
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":{"progressToken":"t"},"arguments":{"a":1.0e-5}}}`,
		"{\n\"jsonrpc\": \"2.0\",\r\n\t\"id\": \"a\\u00e9\",\"result\": {\"a\": [true, false, null, -0.1E+2]}}\n",
		`{"jsonrpc":"2.0","error":{"code":1,"message":"é\ud83d\ude00"}}`,
		`[{"jsonrpc":"2.0","method":"x"},{}]`,
		`{"a":{"a":[[[[]]]]}}`, "\xff", `"\u12G4"`, `{"jsonrpc":"2.0","method":"x","params":{"_meta":{"_meta":1}}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		before := bytes.Clone(in)
		m, err := Parse(in)
		wellFormed := json.Valid(in) && utf8.Valid(in)
		switch {
		case errors.Is(err, ErrBatch):
			fuzzSplit(t, in, wellFormed)
		case tooDeep(in):
		case errors.Is(err, ErrSyntax) == wellFormed:
			t.Errorf("well-formed: %v; Parse: %v", wellFormed, err)
		}
		if err == nil {
			fuzzAppend(t, in, m)
		}
		fuzzPeek(t, in, m, err)
		if !bytes.Equal(in, before) {
			t.Error("the input was changed")
		}
	})
}

// fuzzSplit: a batch is split into values that are well-formed each, exactly
// if it is well-formed itself.
func fuzzSplit(t *testing.T, in []byte, wellFormed bool) {
	each, err := Split(in)
	if tooDeep(in) {
		return
	}
	if utf8.Valid(in) && errors.Is(err, ErrSyntax) == wellFormed {
		t.Errorf("well-formed: %v; Split: %v", wellFormed, err)
	}
	if err != nil {
		return
	}
	var want []json.RawMessage
	if json.Unmarshal(in, &want) == nil && len(want) != len(each) {
		t.Errorf("%d elements, want %d", len(each), len(want))
	}
	for _, one := range each {
		if !json.Valid(one) {
			t.Errorf("element %q is not JSON", one)
		}
	}
}

// fuzzAppend: without edits a message of one line stays as it is, and any
// other keeps all its tokens; with an edit everything else stays.
func fuzzAppend(t *testing.T, in []byte, m *Message) {
	out := m.Append(nil)
	trimmed := bytes.Trim(in, " \t\r\n")
	if !bytes.ContainsAny(trimmed, "\r\n") && !bytes.Equal(out, trimmed) {
		t.Errorf("changed without an edit:\n%q\n%q", trimmed, out)
	}
	if bytes.ContainsAny(out, "\r\n") {
		t.Errorf("more than one line: %q", out)
	}
	var a, b bytes.Buffer
	if json.Compact(&a, in) != nil || json.Compact(&b, out) != nil || !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Errorf("tokens changed:\n%s\n%s", a.Bytes(), b.Bytes())
	}
	edits := []Edit{{MetaToken, []byte(`"new token"`)}, {ID, []byte(`123456789`)}}
	out = m.Append([]byte{'>'}, edits...)[1:]
	if len(out) > m.Len(edits...) {
		t.Errorf("Len %d, but %d bytes", m.Len(edits...), len(out))
	}
	edited, err := Parse(out)
	if err != nil {
		t.Fatalf("%q after the edit: %v", out, err)
	}
	for _, e := range edits {
		if m.Has(e.Field) && !bytes.Equal(edited.Raw(e.Field), e.With) {
			t.Errorf("field %d is %q after the edit", e.Field, edited.Raw(e.Field))
		}
	}
	// Back again: nothing but the edited members may have changed.
	var undo []Edit
	for _, e := range edits {
		if m.Has(e.Field) {
			undo = append(undo, Edit{e.Field, m.Raw(e.Field)})
		}
	}
	if back := edited.Append(nil, undo...); !bytes.Equal(back, m.Append(nil)) {
		t.Errorf("the edits cannot be taken back:\n%q\n%q", m.Append(nil), back)
	}
	members, after := object(t, in), object(t, out)
	if len(members) != len(after) {
		t.Errorf("%d members became %d", len(members), len(after))
	}
}

// fuzzPeek: what the beginning tells must be true of the whole.
func fuzzPeek(t *testing.T, in []byte, m *Message, err error) {
	for _, n := range []int{len(in), len(in) / 2, len(in) * 9 / 10} {
		id, response := PeekID(in[:n])
		if err != nil || id == nil {
			continue
		}
		if !bytes.Equal(id, m.Raw(ID)) || response != (m.Kind() == Response) {
			t.Errorf("after %d bytes PeekID says %q, response %v; it is %q, kind %d", n, id, response, m.Raw(ID), m.Kind())
		}
	}
}

func FuzzAppendString(f *testing.F) {
	f.Add("a\"\\\n\x00\u2028\xff<")
	f.Fuzz(func(t *testing.T, in string) {
		out := AppendString(nil, in)
		var got, want string
		std, _ := json.Marshal(in)
		if json.Unmarshal(out, &got) != nil || json.Unmarshal(std, &want) != nil || got != want {
			t.Errorf("%q became %q", in, out)
		}
	})
}
