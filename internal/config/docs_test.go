package config

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestDocumentation(t *testing.T) {
	data, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(data)
	_, server, ok := strings.Cut(doc, "### A server")
	if !ok {
		t.Fatal("no part about a server")
	}
	for _, key := range append(fileKeys(), "command", "args", "env", "cwd") {
		if !regexp.MustCompile("(?m)^\\|.*`" + key + "`.*\\|").MatchString(doc) {
			t.Errorf("the key %s is in no table", key)
		}
	}
	for _, f := range (&reader{}).childrenFields(&Children{}) {
		if !strings.Contains(server, "\n| `"+f.key+"` |") {
			t.Errorf("the key %s is not in the table of a server", f.key)
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
