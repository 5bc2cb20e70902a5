package config

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "write what Parse does now into testdata")

// Every archive holds pairs: a configuration and, under its name with .want
// behind it, what Parse makes of it.
func TestGolden(t *testing.T) {
	t.Setenv("HOME", "/home/ada")
	t.Setenv("EMPTY", "")
	t.Setenv("TRICK", "${HOME}")
	t.Setenv("HOLDFAST_TEST_UNSET", "") // restored at the end
	os.Unsetenv("HOLDFAST_TEST_UNSET")
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatalf("no archives: %v", err)
	}
	for _, archive := range archives {
		a, err := txtar.ParseFile(archive)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{}
		for _, f := range a.Files {
			want[f.Name] = string(f.Data)
		}
		out := &txtar.Archive{Comment: a.Comment}
		for _, f := range a.Files {
			if strings.HasSuffix(f.Name, ".want") {
				continue
			}
			got := render(Parse(f.Name, f.Data))
			out.Files = append(out.Files, f, txtar.File{Name: f.Name + ".want", Data: []byte(got)})
			if !*update && got != want[f.Name+".want"] {
				t.Errorf("%s: %s:\n%s\ngot:\n%s\nwant:\n%s", archive, f.Name, f.Data, got, want[f.Name+".want"])
			}
		}
		if *update {
			if err := os.WriteFile(archive, txtar.Format(out), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// render writes the fields that are set, then warnings, then errors.
func render(f *File, warnings []Warning, err error) string {
	var b strings.Builder
	if f != nil {
		fields(&b, "", reflect.ValueOf(*f))
	}
	for _, w := range warnings {
		fmt.Fprintf(&b, "warning %s\n", w)
	}
	if err != nil {
		fmt.Fprintf(&b, "%s\n", strings.ReplaceAll("error "+err.Error(), "\n", "\nerror "))
	}
	return b.String()
}

func fields(b *strings.Builder, prefix string, v reflect.Value) {
	for f, value := range v.Fields() {
		switch {
		case f.Name == "Servers" || f.Name == "Tools":
			for i := range value.Len() {
				fields(b, fmt.Sprintf("%s%s[%d].", prefix, f.Name, i), value.Index(i))
			}
		case f.Anonymous:
			fields(b, prefix, value)
		case value.IsZero() || f.Name == "Source":
		case f.Name == "Pos" || value.CanInt() || value.Kind() == reflect.Bool:
			fmt.Fprintf(b, "%s%s: %v\n", prefix, f.Name, value)
		default:
			fmt.Fprintf(b, "%s%s: %q\n", prefix, f.Name, value)
		}
	}
}
