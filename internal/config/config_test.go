package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const least = "servers: {a: {command: x}}\n"

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good.yaml")
	if err := os.WriteFile(good, []byte(least), 0o600); err != nil {
		t.Fatal(err)
	}
	f, warnings, err := Load(good)
	if err != nil || len(warnings) != 0 {
		t.Fatalf("Load: %v, warnings %v", err, warnings)
	}
	if f.Source != good || len(f.Servers) != 1 || f.Servers[0].Pos != (Pos{good, 1, 11}) {
		t.Errorf("Load: %+v", f)
	}

	if _, _, err := Load(filepath.Join(dir, "none.yaml")); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrInvalid) {
		t.Errorf("a missing file: %v", err)
	}
	if _, _, err := Load(dir); err == nil || errors.Is(err, ErrInvalid) {
		t.Errorf("a folder: %v", err)
	}

	big := filepath.Join(dir, "big.yaml")
	if err := os.WriteFile(big, []byte(least+"#"+strings.Repeat(" ", MaxSize)), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err = Load(big)
	if want := big + ": the file is larger than 1 MiB, the most that a configuration may have"; !errors.Is(err, ErrInvalid) || err.Error() != want {
		t.Errorf("a large file: %v, want %s", err, want)
	}
	if _, _, err := Parse("x", []byte(least+"#"+strings.Repeat(" ", MaxSize-len(least)-1))); err != nil {
		t.Errorf("a file of just 1 MiB: %v", err)
	}
}

func TestEncodings(t *testing.T) {
	for _, tc := range []struct{ name, data, want string }{
		{"UTF-16, little end", "\xff\xfea\x00", "x:1:1: the file is in UTF-16: save it as UTF-8"},
		{"UTF-16, big end", "\xfe\xff\x00a", "x:1:1: the file is in UTF-16: save it as UTF-8"},
		{"Latin 1", "a: 1\r\nb: \"é\xe9\"", "x:2:6: not UTF-8: save the file as UTF-8"},
		{"NUL", "a: 1\n\x00", "x:2:1: a NUL byte: this is not a text file"},
		{"open to the end", `{"a": "b`, "x:1:7: a string without its closing quote"},
		{"a comment to the end", `{"servers": {}} // so`, "x:1:13: servers: expected at least one server by its name, such as " + leastFile + ", found none"},
		{"replacement character", "log_format: \ufffd\n" + least, `x:1:13: log_format: expected text or json, found "�"`},
	} {
		if _, _, err := Parse("x", []byte(tc.data)); err == nil || err.Error() != tc.want {
			t.Errorf("%s: %v, want %s", tc.name, err, tc.want)
		}
	}
}

// A hostile file costs bounded time and memory, and its errors fit a screen.
func TestBounds(t *testing.T) {
	var manyServers, manyKeys strings.Builder
	for i := range maxEntries + 1 {
		fmt.Fprintf(&manyServers, `"s%d": {"command": "x"},`, i)
		fmt.Fprintf(&manyKeys, "k%d: 1\n", i)
	}
	t.Setenv("BIG", strings.Repeat("x", 1<<16))
	for _, tc := range []struct{ name, data, want string }{
		{"deep JSON", `{"servers": ` + strings.Repeat(`{"a": `, 10_000), "x:1:613: nested more than 100 deep"},
		{"deep JSON lists", `{"a":` + strings.Repeat("[", 500_000), "x:1:106: nested more than 100 deep"},
		{"deep flow", "a: " + strings.Repeat("[", 20_000), "x:1:104: nested more than 100 deep"},
		{"deep flow maps", strings.Repeat("{a: ", 5000), "x:1:401: nested more than 100 deep"},
		{"deep dashes", strings.Repeat("- ", 10_000), "x:1:201: nested more than 100 deep"},
		{"deep in two ways", strings.Repeat("- ", 90) + strings.Repeat("[", 90) + strings.Repeat("]", 90), "x:1:192: nested more than 100 deep"},
		{"deep indent", deepIndent(200), "x:101:101: nested more than 100 deep"},
		{"many lines", "a: |\n" + strings.Repeat("\n", 500_000), "x:10001:1: more than 10000 lines"},
		{"many tokens", "a: [" + strings.Repeat("1,", 100_000), "x:1:30002: more than 30000 words and signs"},
		{"many servers of ours", `{"servers": {` + manyServers.String() + "}}", "x:1:13: servers: more than 1000 servers"},
		{"many servers of a client", `{"mcpServers": {` + manyServers.String() + "}}", "x:1:16: mcpServers: more than 1000 servers"},
		{"many tools", `{"servers": {"a": {"command": "x", "tools": {` + manyServers.String() + "}}}}", "x:1:45: servers.a.tools: more than 1000 tools"},
		{"the long name of a tool", "servers: {a: {command: x, tools: {" + strings.Repeat("x", 257) + ": {}}}}",
			`x:1:35: servers.a.tools.` + strings.Repeat("x", 60) + `…: expected the name of a tool, or a pattern such as "charge_*", of at most 256 bytes`},
		{"large variables", "servers: {a: {command: x, args: [\"" + strings.Repeat("${BIG}", 100) + "\"]}}", "x:1:34: servers.a.args[0]: the variables of this file hold more than 1 MiB in all"},
		{"references that unfold", "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n", `x:1:4: "&" begins an anchor, which is not supported here: put the text in quotes if it is text`},
	} {
		begun := time.Now()
		if _, _, err := Parse("x", []byte(tc.data)); err == nil || err.Error() != tc.want {
			t.Errorf("%s: %v, want %s", tc.name, err, tc.want)
		}
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("%s took %v", tc.name, took)
		}
	}

	_, _, err := Parse("x", []byte(manyKeys.String()))
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != maxReported+1 || lines[maxReported] != "x: 952 more errors" {
		t.Errorf("%d lines of errors, the last %q", len(lines), lines[len(lines)-1])
	}
	f, warnings, err := Parse("x", []byte(`{`+strings.Repeat(`"k": 1,`, 1)+manyUnused()+`"mcpServers": {"a": {"command": "x"}}}`))
	if err != nil || len(f.Servers) != 1 || len(warnings) != maxReported+1 ||
		warnings[maxReported].Text != "more warnings are left out" {
		t.Errorf("%d warnings, error %v", len(warnings), err)
	}
}

func deepIndent(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

func manyUnused() string {
	var b strings.Builder
	for i := range 200 {
		fmt.Fprintf(&b, `"u%d": 1,`, i)
	}
	return b.String()
}

// The library has panicked on odd texts before.
func TestGuardedTurnsPanicsIntoErrors(t *testing.T) {
	err := guarded(func() error { panic("index\n\x1b[31m out of range") })
	if err == nil || err.line != 1 || err.col != 1 || err.text != "not valid YAML: the reader gave up: index��[31m out of range" {
		t.Errorf("guarded: %+v", err)
	}
	if err := guarded(func() error { return errors.New("other") }); err == nil || err.text != "not valid YAML" {
		t.Errorf("guarded: %+v", err)
	}
}

func TestCheckAfterFlags(t *testing.T) {
	parsed := func(data string) *File {
		f, _, err := Parse("x", []byte(data))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	two := "servers: {tools: {command: x}, b: {command: x}}"
	for _, tc := range []struct {
		name, data string
		change     func(*File)
		want       string
	}{
		{"nothing", two, func(*File) {}, ""},
		{"a path that a name has", two, func(f *File) { f.Path = "/api/tools" },
			`x:1:11: "tools": with several servers this name is taken by a path of the gateway: choose another one than .well-known, dashboard, debug, healthz, mcp, message, metrics, readyz, sse, tools`},
		{"the same with one server", "servers: {tools: {command: x}}", func(f *File) { f.Path = "/tools" }, ""},
		{"equal paths", least, func(f *File) { f.SSEPath = "/mcp" }, `path and sse_path are both "/mcp": they must differ`},
		{"a wrong path", least, func(f *File) { f.Path = "mcp" },
			`path: expected a path such as /mcp, of letters, digits and -._~, without a slash at its end, found "mcp"`},
	} {
		f := parsed(tc.data)
		tc.change(f)
		err := f.Check()
		if got := fmt.Sprint(err); got != tc.want && (err != nil || tc.want != "") {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
		if err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v does not wrap ErrInvalid", tc.name, err)
		}
	}
}

func TestOr(t *testing.T) {
	defaults := Children{Isolation: "shared", MaxChildren: 9, Warm: 2, StartTimeout: time.Minute, StopTimeout: time.Second}
	if got := (Children{}).Or(defaults); got != defaults {
		t.Errorf("nothing set: %+v", got)
	}
	own := Children{Isolation: "session", MaxChildren: 1, Warm: None, StartTimeout: time.Hour, StopTimeout: time.Hour}
	if got := own.Or(defaults); got != own {
		t.Errorf("all set: %+v", got)
	}
}

func TestParseSize(t *testing.T) {
	for s, want := range map[string]int64{
		"1024": 1024, "16MiB": 16 << 20, "16 MiB": 16 << 20, "1KiB": 1024, "2kB": 2000, "2KB": 2000,
		"3MB": 3e6, "1GB": 1e9, "1GiB": 1 << 30, "4096B": 4096, "1024GiB": 1 << 40, "1099511627776": 1 << 40,
		"": 0, "MiB": 0, "1023": 0, "0": 0, "-1MiB": 0, "+1MiB": 0, "1.5MiB": 0, "16mib": 0, "16M": 0, "1TiB": 0,
		"1025GiB": 0, "99999999999999999999": 0, "9223372036854775807GiB": 0, "0x1000": 0, "1_024": 0, "1MiBMiB": 0, " 1MiB": 0, "1MiB ": 0,
	} {
		got, err := ParseSize(s)
		if got != want || (err == nil) != (want != 0) || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", s, got, err, want)
		}
	}
}

func TestNearest(t *testing.T) {
	for key, want := range map[string]string{
		"lisen": "listen", "Listen": "listen", "listne": "listen", "max-body": "max_body", "maxBody": "max_body",
		"listening": "listen", "port": "", "x": "", "": "", strings.Repeat("listen", 10): "",
	} {
		if got := nearest(key, []string{"path", "listen", "max_body"}); got != want {
			t.Errorf("nearest(%q) = %q, want %q", key, got, want)
		}
	}
	if got := distance("abcd", "acbde"); got != 2 {
		t.Errorf("distance: %d", got)
	}
}
