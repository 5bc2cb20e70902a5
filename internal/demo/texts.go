package demo

// What the server says of itself, as JSON where a client reads it.
const (
	capabilities = `{"tools":{},"resources":{},"prompts":{}}`

	serverInfo = `{"name":"holdfast-demo","title":"Holdfast demo","version":"1.0.0"}`

	instructions = "A server to try Holdfast with. hello_world answers at once; build_report takes a while " +
		"and reports its progress; ask_name asks the user for something in the middle of the call."

	aboutURI = "demo://about"

	about = "This server is part of Holdfast and starts with: holdfast serve --demo\n" +
		"Call build_report, cut the connection while it runs, and come back: " +
		"the call goes on, and its answer waits for you.\n"

	resources = `[{
		"uri": "` + aboutURI + `",
		"name": "about",
		"title": "About this server",
		"description": "What this server is for and what to try with it.",
		"mimeType": "text/plain"
	}]`

	prompts = `[{
		"name": "plan_report",
		"title": "Plan a report",
		"description": "Decides what a report has to answer, then has it built.",
		"arguments": [{
			"name": "topic",
			"title": "Topic",
			"description": "What the report is about.",
			"required": true
		}]
	}]`

	askNameParams = `{"message":"What is your name?","requestedSchema":{"type":"object",` +
		`"properties":{"name":{"type":"string","title":"Name","description":"How you want to be greeted.",` +
		`"minLength":1,"maxLength":100}},"required":["name"]}}`

	tools = `[{
		"name": "hello_world",
		"title": "Hello, world",
		"description": "Greets somebody, at once.",
		"inputSchema": {
			"type": "object",
			"properties": {
				"name": {"type": "string", "description": "Who is greeted.", "default": "world"}
			}
		},
		"annotations": {"title": "Hello, world", "readOnlyHint": true, "idempotentHint": true, "openWorldHint": false}
	}, {
		"name": "build_report",
		"title": "Build a report",
		"description": "Builds a report, which takes as many seconds as you like. Reports progress each second and can be cancelled.",
		"inputSchema": {
			"type": "object",
			"properties": {
				"seconds": {"type": "integer", "description": "How long it takes.", "minimum": 1, "maximum": 3600, "default": 20},
				"topic": {"type": "string", "description": "What the report is about.", "default": "keeping connections"}
			}
		},
		"annotations": {"title": "Build a report", "readOnlyHint": true, "idempotentHint": true, "openWorldHint": false}
	}, {
		"name": "ask_name",
		"title": "Ask for a name",
		"description": "Asks the user for a name and greets by it. Needs a client that supports elicitation.",
		"inputSchema": {"type": "object"},
		"annotations": {"title": "Ask for a name", "readOnlyHint": true, "openWorldHint": false}
	}]`
)
