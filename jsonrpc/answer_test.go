package jsonrpc

import "testing"

func TestIsError(t *testing.T) {
	for answer, want := range map[string]bool{
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32601}}`:                  true,
		` { "error" : {} , "id" : "x" } `:                                   true,
		`{"jsonrpc":"2.0","id":1,"result":{"error":{"code":-32601}}}`:       false,
		`{"result":{},"error":{}}`:                                          false, // not well-formed: the first one tells
		`{"jsonrpc":"2.0","id":"error","_meta":{"error":1},"result":{}}`:    false,
		`{"jsonrpc":"2.0","id":"\"error\":","x":["error"],"err\u006fr":{}}`: true,
		`{}`: false, ``: false, `{`: false, `{"id"`: false, `{"id":`: false, `{"id":1`: false, `{"id":1,`: false, `{"id":1,"error`: false,
		`[]`: false, `"error"`: false,
	} {
		if got := IsError([]byte(answer)); got != want {
			t.Errorf("%s: %v", answer, got)
		}
	}
}

// TestResultType: it is found wherever it stands in the result, and nowhere
// else; a server that says it twice is still heard.
func TestResultType(t *testing.T) {
	for msg, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"result":{"content":[{"resultType":"x"}],"resultType":"task"}}`: `"task"`,
		`{"jsonrpc":"2.0","id":1,"result":{"resultType":"task","resultType":"complete"}}`:        `"task"`,
		`{"jsonrpc":"2.0","id":1,"result":{"resultType":["a"]}}`:                                 `["a"]`,
		`{"jsonrpc":"2.0","id":1,"result":{"_meta":{"resultType":"task"}}}`:                      ``,
		`{"jsonrpc":"2.0","id":1,"resultType":"task","result":{}}`:                               ``,
		`{"jsonrpc":"2.0","id":1,"result":["resultType","task"]}`:                                ``,
		`{"jsonrpc":"2.0","id":1,"method":"x","params":{"resultType":"task"}}`:                   ``,
	} {
		m, err := Parse([]byte(msg))
		if err != nil {
			t.Fatalf("%s: %v", msg, err)
		}
		if got := string(m.Raw(ResultType)); got != want {
			t.Errorf("%s: %s", msg, got)
		}
	}
}
