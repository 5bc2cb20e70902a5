package era

import "testing"

func TestTakesTasks(t *testing.T) {
	for capabilities, want := range map[string]bool{
		``: false, `{}`: false, `{"tasks":{}}`: false, `{"extensions":{"io.modelcontextprotocol/tasks":null}}`: false,
		`{"extensions":{"io.modelcontextprotocol/tasks":{}}}`:                                 true,
		`{"extensions":{"a/b":{"c":1.0},"io.modelcontextprotocol/tasks":{"x":1}},"roots":{}}`: true,
	} {
		if got := TakesTasks([]byte(capabilities)); got != want {
			t.Errorf("%s: %v", capabilities, got)
		}
		if with := string(WithTasks([]byte(capabilities))); !TakesTasks([]byte(with)) || want && with != capabilities {
			t.Errorf("%s declares it as %s", capabilities, with)
		}
	}
	if got := string(WithTasks([]byte(`{"roots":{"n":1.0},"extensions":{"a/b":{}}}`))); got != `{"roots":{"n":1.0},"extensions":{"a/b":{},"io.modelcontextprotocol/tasks":{}}}` {
		t.Errorf("got %s", got)
	}
}

func TestWantsTasks(t *testing.T) {
	for fault, want := range map[string]bool{
		`{"code":-32021,"data":` + string(NeedsTasks()) + `}`:             true,
		`{"code":-32021,"data":{"requiredCapabilities":{"sampling":{}}}}`: false,
		`{"code":-32020,"data":` + string(NeedsTasks()) + `}`:             false,
		`{"code":-32021,"message":"no"}`:                                  false,
	} {
		if got := WantsTasks([]byte(fault)); got != want {
			t.Errorf("%s: %v", fault, got)
		}
	}
}
