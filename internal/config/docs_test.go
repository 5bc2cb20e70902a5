package config

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestDocumentation(t *testing.T) {
	t.Setenv("WIKI_TOKEN", "secret")
	data, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(data)
	_, server, ok := strings.Cut(doc, "### A server")
	server, tool, both := strings.Cut(server, "### A tool")
	if !ok || !both {
		t.Fatal("no part about a server, or none about a tool")
	}
	for _, key := range append(fileKeys(), "command", "args", "env", "cwd", "url", "headers", "ca", "insecure_http") {
		if !regexp.MustCompile("(?m)^\\|.*`" + key + "`.*\\|").MatchString(doc) {
			t.Errorf("the key %s is in no table", key)
		}
	}
	r := &reader{}
	for _, f := range slices.Concat(r.childrenFields(&Children{}), r.clocksFields(&Clocks{}), []field{{key: "tools"}}) {
		if !strings.Contains(server, "\n| `"+f.key+"` |") {
			t.Errorf("the key %s is not in the table of a server", f.key)
		}
	}
	for _, f := range r.toolFields(&Tool{}) {
		if !strings.Contains(tool, "\n| `"+f.key+"` |") {
			t.Errorf("the key %s is not in the table of a tool", f.key)
		}
	}
	examples := regexp.MustCompile("(?ms)^```(yaml|json)\n(.*?)^```$").FindAllStringSubmatch(doc, -1)
	if len(examples) < 2 {
		t.Fatalf("%d examples", len(examples))
	}
	for _, m := range examples {
		if _, warnings, err := Parse("example."+m[1], []byte(m[2])); err != nil || len(warnings) > 0 {
			t.Errorf("%s\n%v %v", m[2], err, warnings)
		}
	}
}
