package holdfast_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Cases of kind i: what HTTP and the machines that speak it do to a message.

// C52, the request's side. Compressed replies of a server wait for remote ones.
func TestC52Compression(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte(toolCall("1", "echo", `{"packed":1}`, "")))
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	f := &farm{tools: map[string]func(*fakeCall){"big": func(c *fakeCall) { c.reply(`"` + strings.Repeat("x", 1<<20) + `"`) }}}
	for _, binding := range []string{"streamable", "sse"} {
		t.Run(binding, func(t *testing.T) {
			virtually(t, setup{farm: f}, func(t *testing.T, b *bench) {
				c := bindings[binding](b, v06)
				for _, coding := range []string{"gzip", "br", "x-unknown", "gzip, identity"} {
					s := c.send(packed.String(), "Content-Encoding", coding)
					if wantRefused(t, coding, s, http.StatusUnsupportedMediaType, "-32600"); !strings.Contains(s.header.Get("Accept-Encoding"), "identity") {
						t.Errorf("%s: Accept-Encoding is %q", coding, s.header.Get("Accept-Encoding"))
					}
				}
				for i, coding := range []string{"identity", "Identity"} {
					c.send(toolCall(fmt.Sprint(i), "echo", `{"plain":1}`, ""), "Content-Encoding", coding)
					c.answer(fmt.Sprint(i))
				}
				c.header.Set("Accept-Encoding", "gzip, br, zstd")
				want := `{"jsonrpc":"2.0","id":9,"result":"` + strings.Repeat("x", 1<<20) + `"}`
				s := c.send(toolCall("9", "big", `{}`, ""))
				if got := c.answer("9"); got != want {
					t.Errorf("got %d bytes: %.100q", len(got), got)
				}
				if s.done(); s.header.Get("Content-Encoding") != "" {
					t.Errorf("Content-Encoding is %q", s.header.Get("Content-Encoding"))
				}
				if got := f.told("packed"); len(got) > 0 {
					t.Errorf("a server was told %q", got)
				}
			})
		})
	}
}

// C54, the server's side: what needs no answer gets 202, and nothing with it.
func TestC54WhatNeedsNoAnswer(t *testing.T) {
	f := asking("roots/list")
	for _, binding := range []string{"streamable", "sse"} {
		t.Run(binding, func(t *testing.T) {
			virtually(t, setup{farm: f}, func(t *testing.T, b *bench) {
				c := bindings[binding](b, v03)
				c.send(toolCall("1", "ask", `"?"`, ""))
				q := c.await("roots/list")
				for what, message := range map[string]string{
					"notification":      initialized,
					"unknown":           `{"jsonrpc":"2.0","method":"notifications/of/nothing","params":{}}`,
					"late cancel":       `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}`,
					"broken cancel":     `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}`,
					"no params":         `{"jsonrpc":"2.0","method":"notifications/progress"}`,
					"answer to nothing": `{"jsonrpc":"2.0","id":"hf-x-1","result":{}}`,
					"error to nothing":  `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"?"}}`,
					"batch":             `[` + initialized + `,` + `{"jsonrpc":"2.0","id":"hf-x-1","result":{}}` + `]`,
					"answer":            `{"jsonrpc":"2.0","id":` + raw(q.raw, jsonrpc.ID) + `,"result":{"roots":[]}}`,
				} {
					s := c.send(message).done()
					if s.status != http.StatusAccepted || len(s.body) > 0 || s.header.Get("Content-Type") != "" || s.err != nil {
						t.Errorf("%s: answered with %d %q %q (%v)", what, s.status, s.header.Get("Content-Type"), s.body, s.err)
					}
				}
				if got := c.answer("1"); !strings.Contains(got, `"roots":[]`) {
					t.Errorf("the server heard %s", got)
				}
			})
		})
	}
}

// C56, our listener: an endpoint is there with a slash and without. Redirects
// of a server wait for remote ones.
func TestC56NoRedirects(t *testing.T) {
	in := holdfast.InProcess((&farm{}).serve)
	a, z := in, in
	a.Name, z.Name = "alpha", "zeta"
	for name, tt := range map[string]struct {
		options holdfast.Options
		prefix  string
	}{
		"one server": {holdfast.Options{Server: in}, ""},
		"several":    {holdfast.Options{Servers: []holdfast.Server{a, z}}, "/zeta"},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, setup{options: tt.options}, func(t *testing.T, b *bench) {
				c := b.client()
				for i, path := range []string{"/mcp/", "/mcp"} {
					id := fmt.Sprint(1 + i)
					s := c.do(http.MethodPost, tt.prefix+path, hello(id, v11, "{}")).done()
					if s.status != http.StatusOK {
						t.Fatalf("POST %s: answered with %d %s", path, s.status, s.body)
					}
					session := s.header.Get("Mcp-Session-Id")
					s = c.do(http.MethodPost, tt.prefix+path, toolCall(id+"0", "echo", `{}`, ""), "Mcp-Session-Id", session).done()
					if s.status != http.StatusOK {
						t.Errorf("POST %s: answered with %d %s", path, s.status, s.body)
					}
					get := c.listen(tt.prefix+path, "", "Mcp-Session-Id", session)
					if get.status != http.StatusOK {
						t.Errorf("GET %s: answered with %d", path, get.status)
					}
					if s := c.do(http.MethodDelete, tt.prefix+path, "", "Mcp-Session-Id", session).done(); s.status != http.StatusNoContent {
						t.Errorf("DELETE %s: answered with %d", path, s.status)
					}
				}
				for _, path := range []string{"/sse/", "/sse"} {
					old := b.client()
					old.listen(tt.prefix+path, "")
					old.endpoint = strings.Replace(old.endpoint, "/message?", strings.Replace(path, "sse", "message", 1)+"?", 1)
					old.handshake(v2024, "{}")
				}
				for _, path := range []string{"/mcp//", "//mcp", "/mcp/x", "/mcp/../mcp"} {
					if s := c.do(http.MethodPost, tt.prefix+path, initialized).done(); s.status != http.StatusNotFound {
						t.Errorf("POST %s: answered with %d %v", path, s.status, s.header)
					}
				}
			})
		})
	}
}

// C57, the server's side: the endpoint event names a URL that leads back here.
// What our own client makes of such events waits for remote servers.
func TestC57EndpointEvent(t *testing.T) {
	strip := func(next http.Handler) http.Handler { return http.StripPrefix("/base", next) }
	for name, tt := range map[string]struct {
		options holdfast.Options
		wrap    func(http.Handler) http.Handler
		stream  string
		want    string
	}{
		"plain":             {holdfast.Options{}, nil, "/sse", "/message?sessionId="},
		"own path":          {holdfast.Options{SSEPath: "/a/b/events"}, nil, "/a/b/events", "/a/b/message?sessionId="},
		"public host":       {holdfast.Options{PublicURL: "http://localhost/"}, nil, "/sse", "http://localhost/message?sessionId="},
		"behind a prefix":   {holdfast.Options{PublicURL: "http://localhost/base"}, strip, "/base/sse", "http://localhost/base/message?sessionId="},
		"prefix with slash": {holdfast.Options{PublicURL: "http://localhost/base/"}, strip, "/base/sse", "http://localhost/base/message?sessionId="},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, setup{options: tt.options, farm: &farm{}, wrap: tt.wrap}, func(t *testing.T, b *bench) {
				c := b.client()
				s := c.listen("/x", "") // nothing is there
				if s.status != http.StatusNotFound {
					t.Errorf("answered with %d", s.status)
				}
				s = c.do(http.MethodGet, tt.stream, "").open()
				b.within(bound, "an endpoint event", func() bool { return s.endpointEvent() != "" })
				got := s.endpointEvent()
				session, ok := strings.CutPrefix(got, tt.want)
				if !ok || len(session) < 26 { // 128 bits in base 32
					t.Errorf("the endpoint is %q, want %s and an id", got, tt.want)
				}
				base, err := url.Parse("http://localhost" + tt.stream)
				if err != nil {
					t.Fatal(err)
				}
				at, err := base.Parse(got)
				if err != nil {
					t.Fatal(err)
				}
				c.endpoint, c.main = at.String(), s
				c.handshake(v2024, "{}")
				c.ask(toolCall("1", "echo", `{}`, ""))
				if n := strings.Count(s.bytes(), "event: endpoint"); n != 1 {
					t.Errorf("%d endpoint events", n)
				}
			})
		})
	}
}

// everyEntry are requests to all that is served.
func everyEntry(c *client, header ...string) map[string]*stream {
	return map[string]*stream{
		"POST":    c.do(http.MethodPost, "/mcp", hello(`"post"`, v11, `{"marked":{}}`), header...),
		"GET":     c.do(http.MethodGet, "/mcp", "", header...),
		"DELETE":  c.do(http.MethodDelete, "/mcp", "", header...),
		"OPTIONS": c.do(http.MethodOptions, "/mcp", "", header...),
		"sse":     c.do(http.MethodGet, "/sse", "", header...),
		"message": c.do(http.MethodPost, "/message?sessionId=x", hello(`"message"`, v2024, `{"marked":{}}`), header...),
	}
}

func TestC58HostAndOrigin(t *testing.T) {
	configured := holdfast.Options{AllowHosts: []string{"mcp.example.com"}, AllowOrigins: []string{"https://app.example.com"}}
	for name, tt := range map[string]struct {
		options holdfast.Options
		header  []string
		names   string // the setting that the refusal names; "" if the request passes
	}{
		"proxied host":            {holdfast.Options{}, []string{"Host", "mcp.example.com"}, "--allow-host"},
		"proxied host with port":  {holdfast.Options{}, []string{"Host", "mcp.example.com:443"}, "--allow-host"},
		"proxied host, allowed":   {configured, []string{"Host", "MCP.example.com:443"}, ""},
		"look-alike":              {configured, []string{"Host", "mcp.example.com.evil.example"}, "--allow-host"},
		"rebinding":               {holdfast.Options{}, []string{"Host", "evil.example", "Origin", "http://evil.example"}, "--allow-host"},
		"foreign origin":          {holdfast.Options{}, []string{"Origin", "https://evil.example"}, "--allow-origin"},
		"foreign of many":         {configured, []string{"Origin", "https://evil.example"}, "--allow-origin"},
		"null origin":             {holdfast.Options{}, []string{"Origin", "null"}, "--allow-origin"},
		"two origins":             {holdfast.Options{}, []string{"Origin", "http://localhost\nhttps://evil.example"}, "--allow-origin"},
		"local origin":            {holdfast.Options{}, []string{"Origin", "http://localhost:6274"}, ""},
		"look-alike origin":       {holdfast.Options{}, []string{"Origin", "http://localhost.evil.example"}, "--allow-origin"},
		"origin allowed":          {configured, []string{"Origin", "https://app.example.com"}, ""},
		"no origin":               {holdfast.Options{}, []string{"Host", "127.0.0.1:9999"}, ""},
		"IPv6":                    {holdfast.Options{}, []string{"Host", "[::1]:9999"}, ""},
		"forwarded host":          {holdfast.Options{}, []string{"Host", "mcp.example.com", "X-Forwarded-Host", "localhost"}, "--allow-host"},
		"foreign forwarded host":  {holdfast.Options{}, []string{"X-Forwarded-Host", "evil.example", "Forwarded", "host=evil.example"}, ""},
		"forwarded allowed name":  {configured, []string{"Host", "evil.example", "X-Forwarded-Host", "mcp.example.com"}, "--allow-host"},
		"everything is permitted": {holdfast.Options{AllowHosts: []string{"*"}, AllowOrigins: []string{"*"}}, []string{"Host", "x.example", "Origin", "https://y.example"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := &farm{}
			virtually(t, setup{options: tt.options, farm: f}, func(t *testing.T, b *bench) {
				c := b.client()
				for what, s := range everyEntry(c, tt.header...) {
					s.open()
					if tt.names == "" {
						if s.status == http.StatusForbidden {
							t.Errorf("%s: refused", what)
						}
						continue
					}
					wantRefused(t, what, s, http.StatusForbidden, "-32600")
					if !strings.Contains(string(s.body), tt.names) || strings.Contains(string(s.body), `"id"`) {
						t.Errorf("%s: the refusal is %s, want one without id that names %s", what, s.body, tt.names)
					}
				}
				if got := f.told("marked"); len(got) > 0 && tt.names != "" {
					t.Errorf("a server was told %q", got)
				}
			})
		})
	}
}

// C60 (ii), (iii) and (iv). That our own client sends the header on every
// request (i) waits for the bridge.
func TestC60ProtocolVersionHeader(t *testing.T) {
	virtually(t, setup{farm: &farm{}}, func(t *testing.T, b *bench) {
		for i, header := range []string{v2024, v03, v11, "1999-01-01", "garbage", ""} { // the body negotiates
			s := b.client().send(hello(fmt.Sprint(i), v06, "{}"), "MCP-Protocol-Version", header).done()
			if s.status != http.StatusOK || !strings.Contains(string(s.body), `"protocolVersion":"`+v06+`"`) {
				t.Errorf("initialize with header %q: answered with %d %s", header, s.status, s.body)
			}
		}
		c := b.streamable(v11)
		c.header.Del("MCP-Protocol-Version")
		for i, header := range []string{"", v11, v06} {
			if s := c.send(toolCall(fmt.Sprint(i), "sleep", `{"ms":500}`, ""), "MCP-Protocol-Version", header).done(); s.status != http.StatusOK ||
				!strings.Contains(s.bytes(), "retry:") { // primed, as the session's version has it
				t.Errorf("header %q: answered with %d %q", header, s.status, s.bytes())
			}
		}
		for i, header := range []string{"1999-01-01", "garbage", "2025-11-25x"} {
			for what, s := range map[string]*stream{
				"request":      c.send(body(fmt.Sprint(10+i), "tools/list", ""), "MCP-Protocol-Version", header),
				"notification": c.send(initialized, "MCP-Protocol-Version", header),
				"GET":          c.do(http.MethodGet, "/mcp", "", "MCP-Protocol-Version", header),
				"DELETE":       c.do(http.MethodDelete, "/mcp", "", "MCP-Protocol-Version", header),
			} {
				wantRefused(t, what+" with "+header, s, http.StatusBadRequest, "-32600")
			}
			wantRefused(t, "ping without session", b.client().send(body("1", "ping", ""), "MCP-Protocol-Version", header), http.StatusBadRequest, "-32600")
		}
		c.ask(toolCall("20", "echo", `{}`, "")) // it lives
	})
}
