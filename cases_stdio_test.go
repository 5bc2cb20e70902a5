package holdfast_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Cases of kind f that need no process: what stands on a server's stdin and
// stdout, and how much of it.

// C31: what is no message is skipped, wherever it stands.
func TestC31TextOnStdout(t *testing.T) {
	junk := []string{
		"◇ injected env (0)", "Server v1 running", "", "   ", `{"level":"info"}`, `ready {"a":1}`, `"a string"`, "42", "null",
		`{"jsonrpc":"2.0"`, "\x1b[32mok\x1b[0m", "\xff\xfe", `{"jsonrpc":"1.0","id":1,"result":{}}`, `[]`, strings.Repeat("x", 100_000),
	}
	say := func(k *fake) {
		for _, line := range junk {
			k.line(line)
		}
	}
	f := &farm{
		methods: map[string]func(*fake, *jsonrpc.Message){"initialize": func(k *fake, m *jsonrpc.Message) {
			say(k)
			k.welcome(m)
		}},
		tools: map[string]func(*fakeCall){"noisy": func(c *fakeCall) {
			say(c.k)
			c.progress(`"progress":1`)
			say(c.k)
			c.reply(`{"structuredContent":"done"}`)
			say(c.k)
		}},
	}
	for name, open := range bindings {
		t.Run(name, func(t *testing.T) {
			virtually(t, setup{farm: f}, func(t *testing.T, b *bench) {
				c := open(b, v06)
				for i := range 20 {
					if got := c.ask(toolCall(fmt.Sprint(i), "noisy", `{}`, `{"progressToken":1}`)); !strings.Contains(got, `"done"`) {
						t.Errorf("answered with %s", got)
					}
				}
				if n := len(c.find("notifications/progress")); n != 20 {
					t.Errorf("%d reports of progress", n)
				}
				for _, r := range c.find() { // client.take holds that each is a message
					if strings.Contains(r.raw, "injected") || strings.Contains(r.raw, `"level":"info"`) {
						t.Errorf("the client received %s", r.raw)
					}
				}
				warned := b.log.lines("level=WARN", "stdout")
				if len(warned) == 0 || len(warned) > 10 || !strings.Contains(warned[0], "injected") || !strings.Contains(warned[0], "server=kid") {
					t.Errorf("%d warnings: %.2000q", len(warned), warned)
				}
			})
		})
	}
}

func TestC33PrettyPrintedMessagesAreOneLine(t *testing.T) {
	const args = `{ "text" : "a\\nb", "raw": "x\r\n  \t {\"k\": 1}", "n": 1.0 ,"u":"` + "\u2028" + `", "list": [ 1 , 2 ], "e": { } }`
	pretty := "\n{\n  \"jsonrpc\": \"2.0\",\n\n\t\"id\": 1,\n  \"method\": \"tools/call\",\n  \"params\": {\n    \"name\": \"echo\",\n    \"arguments\":\n      " +
		args + "\n  }\n}\n"
	for _, binding := range []string{"/mcp", "/sse"} {
		for name, message := range map[string]string{
			"LF": pretty, "CRLF": strings.ReplaceAll(pretty, "\n", "\r\n"), "CR": strings.ReplaceAll(pretty, "\n", "\r"),
		} {
			t.Run(name+binding, func(t *testing.T) {
				f := &farm{}
				virtually(t, setup{farm: f}, func(t *testing.T, b *bench) {
					var c *client
					if binding == "/mcp" {
						c = b.streamable(v03)
					} else {
						c = b.legacy(v03)
					}
					want := `{"jsonrpc":"2.0","id":1,"result":{"content":[],"structuredContent":` + args + `}}`
					if got := c.ask(message); stripped(t, got) != stripped(t, want) {
						t.Errorf("got  %q\nwant %q", got, want)
					}
					c.send("[\n" + strings.Replace(message, `"id": 1`, `"id": 2`, 1) + ",\n" + `{"jsonrpc": "2.0",` + "\n" + `"method": "x"}` + "\n]")
					c.answer("2")
					b.within(bound, "the last line", func() bool { return len(f.told()) == 5 }) // after hello, initialized and two calls
					lines := f.told()
					for i, want := range map[int]string{
						2: strings.Replace(message, `"id": 1`, `"id":`+raw(lines[2], jsonrpc.ID), 1),
						3: strings.Replace(message, `"id": 1`, `"id":`+raw(lines[3], jsonrpc.ID), 1),
						4: `{"jsonrpc":"2.0","method":"x"}`,
					} {
						if stripped(t, asSent(t, lines[i])) != stripped(t, want) || strings.ContainsAny(lines[i], "\r\n") {
							t.Errorf("got  %q\nwant %q", lines[i], want)
						}
					}
				})
			})
		}
	}
}

// stripped is a message without the white space between its tokens.
func stripped(t *testing.T, message string) string {
	t.Helper()
	out, inside, escaped := []byte(nil), false, false
	for i := range len(message) {
		switch c := message[i]; {
		case !inside && strings.IndexByte(" \t\r\n", c) >= 0:
			continue
		case c == '"' && !escaped:
			inside = !inside
		}
		escaped = inside && message[i] == '\\' && !escaped
		out = append(out, message[i])
	}
	return string(out)
}

// C26: messages of every size pass in both directions.
func TestC26LargeMessages(t *testing.T) {
	tools := map[string]func(*fakeCall){
		"big": func(c *fakeCall) { c.reply(`{"text":"` + strings.Repeat("x", atoi(c.args)) + `"}`) },
		"len": func(c *fakeCall) { c.reply(fmt.Sprintf(`{"len":%d}`, len(c.args))) },
		"late": func(c *fakeCall) {
			c.pause(time.Second)
			c.reply(`{"text":"` + strings.Repeat("x", atoi(c.args)) + `"}`)
		},
	}
	for name, open := range bindings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, setup{farm: &farm{tools: tools}}, func(t *testing.T, b *bench) {
				c := open(b, v06)
				for i, n := range []int{70 << 10, 1100 << 10, 12 << 20} {
					for _, tool := range []string{"big", "late"} { // as JSON, as an event
						if n > 10<<20 && (tool == "big") != (name == "streamable") {
							continue // the bindings share this work, which takes long under the race detector
						}
						id := fmt.Sprintf(`"%s%d"`, tool, i)
						want := `{"jsonrpc":"2.0","id":` + id + `,"result":{"text":"` + strings.Repeat("x", n) + `"}}`
						if got := c.ask(toolCall(id, tool, fmt.Sprint(n), "")); got != want {
							t.Errorf("%s of %d: got %d bytes: %.100s", tool, n, len(got), got)
						}
					}
				}
				for i, n := range []int{150 << 10, 5 << 20} {
					id := fmt.Sprint(i)
					if got := c.ask(toolCall(id, "len", `"`+strings.Repeat("y", n-2)+`"`, "")); !strings.Contains(got, fmt.Sprintf(`{"len":%d}`, n)) {
						t.Errorf("%d: got %.200s", n, got)
					}
				}
			})
		})
	}
}

func atoi(s string) (n int) {
	_, _ = fmt.Sscan(s, &n)
	return n
}

// Past the limit it is one call that fails, in either direction.
func TestC26MessagesOverTheLimit(t *testing.T) {
	const limit = 1 << 20
	tools := map[string]func(*fakeCall){"big": func(c *fakeCall) {
		const frame = len(`{"jsonrpc":"2.0","id":,"result":""}`)
		c.reply(`"` + strings.Repeat("x", atoi(c.args)-frame-len(c.id)) + `"`)
	}}
	for name, open := range bindings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &farm{tools: tools}
			virtually(t, setup{options: holdfast.Options{MaxBody: limit}, farm: f}, func(t *testing.T, b *bench) {
				c := open(b, v06)
				other := c.send(toolCall(`"other"`, "sleep", `{"ms":5000}`, ""))
				if got := c.ask(toolCall("1", "big", fmt.Sprint(limit), "")); !strings.Contains(got, "xxx") {
					t.Errorf("at the limit: answered with %.300s", got)
				}
				for i, n := range []int{limit + 1, 2 * limit, 5 * limit} {
					got := c.ask(toolCall(fmt.Sprint(2+i), "big", fmt.Sprint(n), ""))
					for _, want := range []string{`"code":-32603`, "--max-body", fmt.Sprint(n), `"outcome":"executed"`} {
						if !strings.Contains(got, want) {
							t.Errorf("a result of %d: answered with %.300s, want %s", n, got, want)
						}
					}
				}
				padded := func(id string, n int) string {
					frame := toolCall(id, "echo", `{"pad":""}`, "")
					return strings.Replace(frame, `""`, `"`+strings.Repeat("y", n-len(frame))+`"`, 1)
				}
				if got := c.ask(padded("10", limit)); !strings.Contains(got, "yyy") {
					t.Errorf("at the limit: answered with %.300s", got)
				}
				for i, n := range []int{limit + 1, 3 * limit} {
					s := c.send(padded(fmt.Sprint(11+i), n))
					if name == "stdio" {
						if got := c.answer(fmt.Sprint(11 + i)); !strings.Contains(got, "--max-body") {
							t.Errorf("a request of %d: answered with %.300s", n, got)
						}
						continue
					}
					if s.done(); s.status != http.StatusRequestEntityTooLarge || !strings.Contains(string(s.body), `"error"`) {
						t.Errorf("a request of %d: answered with %d %.300s (%v)", n, s.status, s.body, s.err)
					}
				}
				if got := c.answer(`"other"`); !strings.Contains(got, "slept") {
					t.Errorf("the other call was answered with %.300s", got)
				}
				other.done()
				c.ask(toolCall(`"after"`, "echo", `{}`, ""))
				if n := len(f.told("yyy")); n > 3 {
					t.Errorf("the servers were told %d long requests", n)
				}
			})
		})
	}
}
