package era

import "testing"

func TestKeepsPromise(t *testing.T) {
	const told = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"logging":{},"prompts":{"listChanged":false},
		"completions":null,"extensions":{"a/b":{"n":1,"s":"x","kinds":["p","q"]}}},"serverInfo":{"name":"s","version":"1"}}`
	const rest = `"tools":{"listChanged":true},"logging":{},"prompts":{},"extensions":{"a/b":{"n":1,"s":"x","kinds":["q","p"]}}`
	result := func(version, capabilities string) string {
		return `{"protocolVersion":"` + version + `","capabilities":{` + capabilities + `}}`
	}
	for name, tt := range map[string]struct {
		now  string
		want bool
	}{
		"the same":                        {told, true},
		"spelled otherwise":               {result(`2025-11-2\u0035`, rest), true},
		"a capability more":               {result("2025-11-25", rest+`,"resources":{"subscribe":true}`), true},
		"a member more":                   {result("2025-11-25", `"tools":{"listChanged":true,"x":[]},"logging":{"y":1},"prompts":{"listChanged":true},"extensions":{"a/b":{"n":1,"s":"x","kinds":["o","p","q"]},"c/d":{}}`), true},
		"a capability less":               {result("2025-11-25", `"tools":{"listChanged":true},"prompts":{},"extensions":{"a/b":{"n":1,"s":"x","kinds":["p","q"]}}`), false},
		"a capability that is null":       {result("2025-11-25", `"tools":{"listChanged":true},"logging":null,"prompts":{},"extensions":{"a/b":{"n":1,"s":"x","kinds":["p","q"]}}`), false},
		"a capability in another case":    {result("2025-11-25", `"Tools":{"listChanged":true},"logging":{},"prompts":{},"extensions":{"a/b":{"n":1,"s":"x","kinds":["p","q"]}}`), false},
		"no longer true":                  {result("2025-11-25", `"tools":{"listChanged":false},"logging":{},"prompts":{},"extensions":{"a/b":{"n":1,"s":"x","kinds":["p","q"]}}`), false},
		"no word of it":                   {result("2025-11-25", `"tools":{},"logging":{},"prompts":{},"extensions":{"a/b":{"n":1,"s":"x","kinds":["p","q"]}}`), false},
		"another number":                  {result("2025-11-25", `"tools":{"listChanged":true},"logging":{},"prompts":{},"extensions":{"a/b":{"n":2,"s":"x","kinds":["p","q"]}}`), false},
		"another text":                    {result("2025-11-25", `"tools":{"listChanged":true},"logging":{},"prompts":{},"extensions":{"a/b":{"n":1,"s":"y","kinds":["p","q"]}}`), false},
		"one less in a list":              {result("2025-11-25", `"tools":{"listChanged":true},"logging":{},"prompts":{},"extensions":{"a/b":{"n":1,"s":"x","kinds":["p"]}}`), false},
		"an extension less":               {result("2025-11-25", `"tools":{"listChanged":true},"logging":{},"prompts":{}`), false},
		"another revision":                {result("2025-06-18", rest), false},
		"no capabilities":                 {`{"protocolVersion":"2025-11-25"}`, false},
		"capabilities under another name": {`{"protocolVersion":"2025-11-25","Capabilities":{` + rest + `}}`, false},
		"a capability that is no object":  {result("2025-11-25", `"tools":true,"logging":{},"prompts":{},"extensions":{"a/b":{"n":1,"s":"x","kinds":["p","q"]}}`), false},
		"no object":                       {`7`, false},
		"nothing":                         {``, false},
	} {
		if got := KeepsPromise([]byte(told), []byte(tt.now)); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if !KeepsPromise([]byte(`{"protocolVersion":"x"}`), []byte(`{"protocolVersion":"x","capabilities":{"tools":{}}}`)) {
		t.Error("where no capability was told, none can be missing")
	}
}
