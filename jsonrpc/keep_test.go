package jsonrpc

import (
	"bytes"
	"encoding/json"
	"testing"
)

func TestAppendWith(t *testing.T) {
	for object, want := range map[string]string{
		``:                                 `{"k":[1]}`,
		`null`:                             `{"k":[1]}`,
		`{"a":`:                            `{"k":[1]}`,
		`{}`:                               `{"k":[1]}`,
		` { } `:                            ` {"k":[1] } `,
		`{"a" : 1.0 }`:                     `{"a" : 1.0,"k":[1] }`,
		`{ "a":1 , "k" : {"x": 2}, "b":3}`: `{ "a":1 , "k" : [1], "b":3}`,
		`{"\u006b":0}`:                     `{"\u006b":[1]}`,
		`{"k":0,"k":1}`:                    `{"k":[1],"k":1}`,
		`{"a":{"k":0}}`:                    `{"a":{"k":0},"k":[1]}`,
	} {
		if got := string(AppendWith([]byte("~"), []byte(object), "k", []byte("[1]"))); got != "~"+want {
			t.Errorf("%s: %s, want %s", object, got, want)
		}
	}
}

func TestAppendWithout(t *testing.T) {
	for object, want := range map[string]string{
		``:                               ``,
		`[1]`:                            `[1]`,
		`{ }`:                            `{ }`,
		`{"a" : 1.0, "b":2 }`:            `{"a" : 1.0, "b":2 }`,
		`{ "k":1 }`:                      `{  }`,
		`{"k":1, "a" :2}`:                `{"a" :2}`,
		`{"a":1 , "k":{"k":1} }`:         `{"a":1 }`,
		`{"a":1 , "k":2,  "b" : 3}`:      `{"a":1,  "b" : 3}`,
		`{"k":1,"a":2,"\u006b":3,"k":4}`: `{"a":2}`,
		`{"k":1,"k":2}`:                  `{}`,
		`{"a":1,"k":`:                    `{"a":1,"k":`,
	} {
		if got := string(AppendWithout([]byte("~"), []byte(object), "k")); got != "~"+want {
			t.Errorf("%s: %s, want %s", object, got, want)
		}
	}
}

func TestAppendEach(t *testing.T) {
	double := func(e []byte) []byte { return append(bytes.Clone(e), e...) }
	for array, want := range map[string]string{
		``:                   ``,
		`{"a":[1]}`:          `{"a":[1]}`,
		`[1,`:                `[1,`,
		`[ ]`:                `[ ]`,
		` [ "a" , {"b":1}] `: ` [ "a""a" , {"b":1}{"b":1}] `,
	} {
		if got := string(AppendEach(nil, []byte(array), double)); got != want {
			t.Errorf("%s: %s, want %s", array, got, want)
		}
	}
}

func TestUnquote(t *testing.T) {
	for raw, want := range map[string]string{``: "", `"`: "", `1`: "", `"a"b"`: "", `"a`: "", `""`: "", `"a\u00e9\n"`: "aé\n", `"plain"`: "plain"} {
		if got := Unquote([]byte(raw)); got != want {
			t.Errorf("%s: %q, want %q", raw, got, want)
		}
	}
}

// FuzzKeep: what is spliced is well-formed where its parts are, and a member
// that is set and taken out again leaves every byte as it was.
func FuzzKeep(f *testing.F) {
	f.Add([]byte(`{"a" : 1, "b":{"c":[ ]}}`))
	f.Add([]byte(` { } `))
	f.Fuzz(func(t *testing.T, object []byte) {
		if Members(object) == nil || !json.Valid(object) || Get(object, "new") != nil {
			return
		}
		with := AppendWith(nil, object, "new", []byte(`{"x":1}`))
		if !json.Valid(with) || string(Get(with, "new")) != `{"x":1}` {
			t.Fatalf("%q became %q", object, with)
		}
		if without := AppendWithout(nil, with, "new"); !bytes.Equal(without, object) {
			t.Fatalf("%q became %q and then %q", object, with, without)
		}
	})
}
