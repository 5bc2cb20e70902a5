package stdio

import "testing"

func TestCompanionLine(t *testing.T) {
	tests := []struct {
		line string
		add  bool
		pgid int
		ok   bool
	}{
		{"+123", true, 123, true},
		{"-123", false, 123, true},
		{"+2147483647", true, 2147483647, true},
		{"+2147483648", false, 0, false},
		{"+99999999999999999999", false, 0, false},
		{"+0", false, 0, false},
		{"+1", false, 0, false},
		{"+-5", false, 0, false},
		{"++5", false, 0, false},
		{"+", false, 0, false},
		{"", false, 0, false},
		{"123", false, 0, false},
		{"+12x", false, 0, false},
		{"+ 12", false, 0, false},
	}
	for _, tt := range tests {
		add, pgid, ok := parseCompanionLine(tt.line)
		if add != tt.add || pgid != tt.pgid || ok != tt.ok {
			t.Errorf("%q: got %v %d %v", tt.line, add, pgid, ok)
		}
		if ok && formatCompanionLine(add, pgid) != tt.line+"\n" {
			t.Errorf("%q: formatted as %q", tt.line, formatCompanionLine(add, pgid))
		}
	}
}
