package config

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/txtar"
)

// seeds are the configurations of the golden archives.
func seeds(f *testing.F) [][]byte {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(archives) == 0 {
		f.Fatalf("no archives: %v", err)
	}
	var all [][]byte
	for _, archive := range archives {
		a, err := txtar.ParseFile(archive)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range a.Files {
			if !strings.HasSuffix(file.Name, ".want") {
				all = append(all, file.Data)
			}
		}
	}
	return all
}

// Whatever the file, Parse ends in a configuration that can be used or in
// errors that can be shown.
func FuzzParse(f *testing.F) {
	for _, data := range seeds(f) {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, warnings, err := Parse("x", data)
		if (file == nil) != (err != nil) {
			t.Fatalf("file %v, error %v", file, err)
		}
		for _, w := range warnings {
			showable(t, w.Pos, w.Text)
		}
		if err != nil {
			joined, ok := err.(interface{ Unwrap() []error })
			if !ok {
				t.Fatalf("%T", err)
			}
			for _, one := range joined.Unwrap() {
				e, ok := errors.AsType[*Error](one)
				if !ok || !errors.Is(one, ErrInvalid) {
					t.Fatalf("%T: %v", one, one)
				}
				showable(t, e.Pos, e.Text)
			}
			return
		}
		usable(t, file)
	})
}

func showable(t *testing.T, p Pos, text string) {
	t.Helper()
	if p.File != "x" || p.Line < 1 && !strings.Contains(text, "more errors") && !strings.Contains(text, "1 MiB") || p.Line > 0 && p.Column < 1 {
		t.Errorf("no place: %+v: %s", p, text)
	}
	if strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f }) || !utf8.ValidString(text) || len(text) > 2000 {
		t.Errorf("not fit for a terminal: %q", text)
	}
}

func usable(t *testing.T, f *File) {
	t.Helper()
	if len(f.Servers) == 0 {
		t.Error("no servers")
	}
	names := map[string]bool{}
	for _, s := range f.Servers {
		if (s.Command == "") == (s.URL == "") || !validName(s.Name) || names[s.Name] || s.Pos.Line < 1 {
			t.Errorf("server %+v", s)
		}
		names[s.Name] = true
		for _, text := range append(append([]string{s.Command, s.Dir}, s.Args...), s.Env...) {
			if strings.ContainsRune(text, 0) {
				t.Errorf("a NUL character in %q", text)
			}
		}
		tools := map[string]bool{}
		for _, tool := range s.Tools {
			if tool.Name == "" || len(tool.Name) > maxToolName || tools[tool.Name] || tool.Pos.Line < 1 {
				t.Errorf("tool %+v", tool)
			}
			tools[tool.Name] = true
		}
	}
	if err := f.Check(); err != nil {
		t.Error(err)
	}
}

// What is JSON means here what it means to encoding/json.
func FuzzReadJSON(f *testing.F) {
	for _, data := range seeds(f) {
		f.Add(string(data))
	}
	f.Add(`[1, -2.5e3, "\ud800", {"a": {}, "a": []}, true, false, null]`)
	f.Fuzz(func(t *testing.T, text string) {
		got, bad := readJSON(text)
		if (got == nil || bad != nil) && json.Valid([]byte(text)) && utf8.ValidString(text) && !strings.Contains(bad.text, "deep") {
			t.Fatalf("%d:%d: %s", bad.line, bad.col, bad.text)
		}
		dec := json.NewDecoder(strings.NewReader(text))
		dec.UseNumber()
		var want any
		if !json.Valid([]byte(text)) || dec.Decode(&want) != nil || bad != nil {
			return
		}
		if !reflect.DeepEqual(plainValue(got), want) {
			t.Fatalf("%q: %v, want %v", text, plainValue(got), want)
		}
	})
}

func plainValue(n *node) any {
	switch n.kind {
	case kindNull:
		return nil
	case kindBool:
		return n.text == "true"
	case kindNumber:
		return json.Number(n.text)
	case kindString:
		return n.text
	case kindList:
		list := []any{}
		for _, item := range n.items {
			list = append(list, plainValue(item))
		}
		return list
	}
	object := map[string]any{}
	for _, p := range n.pairs {
		object[p.key.text] = plainValue(p.value)
	}
	return object
}
