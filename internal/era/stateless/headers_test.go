package stateless

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/exchange"
	"github.com/holdfast-mcp/holdfast/internal/wire"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// request is a POST with the headers, in pairs; a value with line ends is that
// of several headers.
func request(t testing.TB, headers ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/mcp", nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		for v := range strings.SplitSeq(headers[i+1], "\n") {
			r.Header.Add(headers[i], v)
		}
	}
	return r
}

func parsed(t testing.TB, format string, args ...any) *jsonrpc.Message {
	t.Helper()
	m, err := jsonrpc.Parse(fmt.Appendf(nil, format, args...))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// message is a request with params, members of an object.
func message(t testing.TB, method, params string) *jsonrpc.Message {
	t.Helper()
	return parsed(t, `{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, method, params)
}

// known is a server that knows what its tools mirror.
func known(tools string) *Server {
	s := &Server{}
	all := map[string][]mirroredParam{}
	collect([]byte(`{"tools":`+tools+`}`), all)
	s.schemas.clients = map[[32]byte]*shown{exchange.Identity("\x00\x00", &jsonrpc.Message{}): {tools: all, fetched: time.Now().Add(time.Hour)}} // so that nobody is asked
	return s
}

func encoded(s string) string {
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(s)) + "?="
}

const (
	version = "MCP-Protocol-Version"
	method  = "Mcp-Method"
	name    = "Mcp-Name"
	call    = `"name":"delete_all","arguments":{}`
	read    = `"uri":"file:///Zał.pdf"`
)

// usual are the headers that every request has.
func usual(m string) []string { return []string{version, "2026-07-28", method, m} }

// headerCases are requests and their headers.
var headerCases = []struct {
	what, method, params string
	headers              []string
	ok                   bool
}{
	{"no name is needed", "tools/list", `"cursor":"x"`, usual("tools/list"), true},
	{"a name that nobody asked for", "tools/list", `"name":"a"`, append(usual("tools/list"), name, "b"), true},
	{"right", "tools/call", call, append(usual("tools/call"), name, "delete_all"), true},
	{"(i) another name", "tools/call", call, append(usual("tools/call"), name, "read_file"), false},
	{"(ii) encoded", "resources/read", read, append(usual("resources/read"), name, "=?base64?ZmlsZTovLy9aYcWCLnBkZg==?="), true},
	{"encoded, another", "resources/read", read, append(usual("resources/read"), name, encoded("file:///Zal.pdf")), false},
	{"raw bytes", "resources/read", read, append(usual("resources/read"), name, "file:///Zał.pdf"), false},
	{"(iii) no method", "tools/call", call, []string{version, "2026-07-28", name, "delete_all"}, false},
	{"another method", "tools/call", call, append(usual("tools/list"), name, "delete_all"), false},
	{"a method in capitals", "tools/call", call, append(usual("Tools/Call"), name, "delete_all"), false},
	{"an encoded method", "tools/call", call, append(usual(encoded("tools/call")), name, "delete_all"), false},
	{"(iv) the sentinel in capitals", "tools/call", call, append(usual("tools/call"), name, "=?BASE64?ZGVsZXRlX2FsbA==?="), false},
	{"(iv) a name that looks so", "tools/call", `"name":"=?BASE64?ZGVsZXRlX2FsbA==?="`, append(usual("tools/call"), name, "=?BASE64?ZGVsZXRlX2FsbA==?="), true},
	{"(v) a task", "tasks/get", `"taskId":"t/1"`, append(usual("tasks/get"), name, "t/1"), true},
	{"(v) another task", "tasks/cancel", `"taskId":"t/1"`, append(usual("tasks/cancel"), name, "t/2"), false},
	{"(v) a task, encoded", "tasks/update", `"taskId":"t/1"`, append(usual("tasks/update"), name, encoded("t/1")), true},
	{"(v) no header", "tasks/get", `"taskId":"t/1"`, usual("tasks/get"), false},
	{"(v) a method that the extension does not have", "tasks/result", `"taskId":"t/1"`, usual("tasks/result"), true},
	{"(v) two tasks", "tasks/get", `"taskId":"t/1","taskId":"t/2"`, append(usual("tasks/get"), name, "t/1"), false},
	{"(v) a number", "tasks/get", `"taskId":1`, append(usual("tasks/get"), name, "1"), false},
	{"(vii) an unknown parameter", "tools/call", call, append(usual("tools/call"), name, "delete_all", "Mcp-Param-X", "\xff"), true},
	{"(viii) a name with the sentinel, bare", "tools/call", `"name":"=?base64?Zm9v?="`, append(usual("tools/call"), name, "=?base64?Zm9v?="), false},
	{"(viii) and encoded", "tools/call", `"name":"=?base64?Zm9v?="`, append(usual("tools/call"), name, encoded("=?base64?Zm9v?=")), true},
	{"half a sentinel", "tools/call", `"name":"=?base64?x"`, append(usual("tools/call"), name, "=?base64?x"), true},
	{"half a sentinel, the shortest", "tools/call", `"name":"=?base64?="`, append(usual("tools/call"), name, "=?base64?="), true},
	{"an empty name", "tools/call", `"name":""`, append(usual("tools/call"), name, ""), true},
	{"an empty name, encoded", "tools/call", `"name":""`, append(usual("tools/call"), name, "=?base64??="), true},
	{"bad base64", "tools/call", call, append(usual("tools/call"), name, "=?base64?ZGVsZXRlX2FsbA?="), false},
	{"a control character", "tools/call", `"name":"a\u0001"`, append(usual("tools/call"), name, "a\x01"), false},
	{"a control character, encoded", "tools/call", `"name":"a\u0001\n"`, append(usual("tools/call"), name, encoded("a\x01\n")), true},
	{"a name in other letters", "tools/call", call, append(usual("tools/call"), name, "Delete_All"), false},
	{"the header's name in other letters", "tools/call", call, []string{"mcp-PROTOCOL-version", "2026-07-28", "MCP-METHOD", "tools/call", "mcp-name", "delete_all"}, true},
	{"no name header", "tools/call", call, usual("tools/call"), false},
	{"two names", "tools/call", call, append(usual("tools/call"), name, "delete_all\ndelete_all"), false},
	{"two methods", "tools/list", `"a":1`, []string{version, "2026-07-28", method, "tools/list\ntools/call"}, false},
	{"two versions", "tools/list", `"a":1`, []string{version, "2026-07-28\n2026-07-28", method, "tools/list"}, false},
	{"no version header", "tools/list", `"a":1`, []string{method, "tools/list"}, false},
	{"another version header", "tools/list", `"a":1`, []string{version, "2025-11-25", method, "tools/list"}, false},
	{"a body without a name", "tools/call", `"arguments":{}`, append(usual("tools/call"), name, "read_file"), false},
	{"a body without a name, and no header", "tools/call", `"arguments":{}`, usual("tools/call"), true},
	{"a number for a name", "prompts/get", `"name":1`, append(usual("prompts/get"), name, "1"), false},
	{"an escaped name", "prompts/get", `"na\u006de":"\u0041"`, append(usual("prompts/get"), name, "A"), true},
	{"a name that differs by case", "prompts/get", `"name":"a","Name":"b"`, append(usual("prompts/get"), name, "b"), false},
}

// TestHeaders: C69. The values that are mirrored must say what the body says.
func TestHeaders(t *testing.T) {
	for _, tt := range headerCases {
		s := known(`[{"name":"delete_all"},{"name":""},{"name":"a\u0001"},{"name":"a\u0001\n"}]`)
		refusal := checked(s, request(t, tt.headers...), message(t, tt.method, tt.params))
		if (refusal == nil) != tt.ok {
			t.Errorf("%s: %v", tt.what, refusal)
		}
		if refusal != nil && (refusal.Status != http.StatusBadRequest || refusal.Code != -32020) {
			t.Errorf("%s: refused with %d, %d", tt.what, refusal.Status, refusal.Code)
		}
	}
	// Without a version in the body the request is malformed; that is found later.
	if refusal := checked(known(`[]`), request(t, version, "2026-07-28"), parsed(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)); refusal != nil {
		t.Errorf("a body without a version: %v", refusal)
	}
}

// mirroring is a tool whose arguments are mirrored.
const mirroring = `[{"name":"t","inputSchema":{"type":"object","properties":{
	"region":{"type":"string","x-mcp-header":"Region"},
	"limit":{"type":"integer","x-mcp-header":"Limit"},
	"dry":{"type":"boolean","x-mcp-header":"dry-run"},
	"deep":{"type":"object","properties":{"er":{"type":"string","x-mcp-header":"Deep"}}},
	"list":{"type":"array","items":{"type":"string","x-mcp-header":"Item"}},
	"bad":{"type":"string","x-mcp-header":"a b"},
	"worse":{"type":"string","x-mcp-header":"a\r\nB: c"},
	"none":{"type":"string","x-mcp-header":""},
	"odd":{"type":"string","x-mcp-header":7}},
	"oneOf":[{"properties":{"other":{"type":"string","x-mcp-header":"Other"}}}]}}]`

// paramCases are arguments, and the headers that mirror them.
var paramCases = []struct {
	what, arguments string
	headers         []string
	ok              bool
}{
	{"nothing", `{}`, nil, true},
	{"no arguments", ``, nil, true},
	{"null", `{"region":null}`, nil, true},
	{"null, and a header", `{"region":null}`, []string{"Region", ""}, false},
	{"nothing, and a header", `{}`, []string{"Region", "us"}, false},
	{"right", `{"region":"us-west1"}`, []string{"Region", "us-west1"}, true},
	{"its name in other letters", `{"region":"us"}`, []string{"rEGION", "us"}, true},
	{"missing", `{"region":"us"}`, nil, false},
	{"twice", `{"region":"us"}`, []string{"Region", "us\nus"}, false},
	{"another", `{"region":"us"}`, []string{"Region", "eu"}, false},
	{"in other letters", `{"region":"us"}`, []string{"Region", "US"}, false},
	{"encoded", `{"region":"Hello, 世界"}`, []string{"Region", "=?base64?SGVsbG8sIOS4lueVjA==?="}, true},
	{"padded", `{"region":" padded "}`, []string{"Region", "=?base64?IHBhZGRlZCA=?="}, true},
	{"lines", `{"region":"line1\nline2"}`, []string{"Region", "=?base64?bGluZTEKbGluZTI=?="}, true},
	{"the sentinel itself", `{"region":"=?base64?literal?="}`, []string{"Region", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="}, true},
	{"raw bytes", `{"region":"世"}`, []string{"Region", "世"}, false},
	{"an empty text", `{"region":""}`, []string{"Region", ""}, true},
	{"an integer", `{"limit":42}`, []string{"Limit", "42"}, true},
	{"by number", `{"limit":42}`, []string{"Limit", "42.0"}, true},
	{"by number, the other way", `{"limit":42.00}`, []string{"Limit", "42"}, true},
	{"negative", `{"limit":-7}`, []string{"Limit", "-7"}, true},
	{"the safe maximum", `{"limit":9007199254740991}`, []string{"Limit", "9007199254740991"}, true},
	{"beyond what floats tell apart", `{"limit":9007199254740993}`, []string{"Limit", "9007199254740992"}, false},
	{"another integer", `{"limit":42}`, []string{"Limit", "43"}, false},
	{"hexadecimal", `{"limit":16}`, []string{"Limit", "0x10"}, false},
	{"binary", `{"limit":1}`, []string{"Limit", "0b1"}, false},
	{"octal", `{"limit":8}`, []string{"Limit", "0o10"}, false},
	{"a fraction", `{"limit":2}`, []string{"Limit", "4/2"}, false},
	{"a sign", `{"limit":42}`, []string{"Limit", "+42"}, false},
	{"a space", `{"limit":42}`, []string{"Limit", "42 "}, false},
	{"digits with lines", `{"limit":1000}`, []string{"Limit", "1_000"}, false},
	{"an exponent, spelled alike", `{"limit":1e3}`, []string{"Limit", "1e3"}, true},
	{"an exponent that would not end", `{"limit":1e999999999}`, []string{"Limit", "1e999999998"}, false},
	{"infinite", `{"limit":1}`, []string{"Limit", "Inf"}, false},
	{"a boolean", `{"dry":true}`, []string{"Dry-Run", "true"}, true},
	{"another boolean", `{"dry":true}`, []string{"Dry-Run", "false"}, false},
	{"a boolean as text", `{"dry":"true"}`, []string{"Dry-Run", "true"}, true},
	{"a boolean in capitals", `{"dry":true}`, []string{"Dry-Run", "True"}, false},
	{"nested", `{"deep":{"er":"x"}}`, []string{"Deep", "x"}, true},
	{"nested, missing", `{"deep":{"er":"x"}}`, nil, false},
	{"nested in no object", `{"deep":"er"}`, nil, true},
	{"twice in the body", `{"region":"us","region":"eu"}`, []string{"Region", "us"}, false},
	{"twice in the body, escaped", `{"region":"us","reg\u0069on":"eu"}`, []string{"Region", "us"}, false},
	{"nested, twice", `{"deep":{"er":"x"},"deep":{"er":"y"}}`, []string{"Deep", "x"}, false},
	{"two kinds of arguments", `{"region":"us"},"arguments":{"region":"eu"}`, []string{"Region", "us"}, false},
	{"no header can be called so", `{"bad":"x","worse":"y","none":"z","odd":"q"}`, nil, true},
	{"not statically reachable", `{"list":["a"],"other":"b"}`, nil, true},
}

// TestParamHeaders: arguments that a tool's schema mirrors.
func TestParamHeaders(t *testing.T) {
	for _, tt := range paramCases {
		s := known(mirroring)
		headers := []string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "t"}
		for i := 0; i < len(tt.headers); i += 2 {
			headers = append(headers, "Mcp-Param-"+tt.headers[i], tt.headers[i+1])
		}
		params := `"name":"t"`
		if tt.arguments != "" {
			params += `,"arguments":` + tt.arguments
		}
		if refusal := checked(s, request(t, headers...), message(t, "tools/call", params)); (refusal == nil) != tt.ok {
			t.Errorf("%s: %v", tt.what, refusal)
		}
	}
}

// TestSchemas: what tools mirror is asked of the server, page by page, and not
// too often; a server that cannot be asked just now is not forgotten.
func TestSchemas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c schemas
		asked := 0
		broken := false
		header := "Region"
		ask := func(_ context.Context, params []byte) ([]byte, error) {
			asked++
			if broken {
				return nil, errors.New("broken")
			}
			switch string(params) {
			case `{}`:
				return []byte(`{"tools":[{"name":"a"}],"nextCursor":"\u0032"}`), nil
			case `{"cursor":"\u0032"}`:
				return []byte(`{"tools":[{"name":"b","inputSchema":{"properties":{"r":{"x-mcp-header":"` + header + `"}}}}],"nextCursor":null}`), nil
			}
			return nil, fmt.Errorf("unknown cursor: %s", params)
		}
		look := func(what, tool string, again bool, wantAsked int, wantHeader string) {
			t.Helper()
			asked = 0
			got := c.of(t.Context(), [32]byte{}, ask, []byte(tool), again)
			name := ""
			if len(got) > 0 {
				name = got[0].header
			}
			if asked != wantAsked || name != wantHeader {
				t.Errorf("%s: asked %d times, mirrors %q; want %d and %q", what, asked, name, wantAsked, wantHeader)
			}
		}
		look("at first", "b", false, 2, "Region")
		look("then", "b", false, 0, "Region")
		look("a tool that mirrors nothing", "a", false, 0, "")
		look("unknown, at once", "c", false, 0, "")
		header = "Zone"
		look("a mismatch, at once", "b", true, 0, "Region")
		time.Sleep(schemasAgain + time.Millisecond)
		look("a mismatch, later", "b", true, 2, "Zone")
		time.Sleep(schemasAgain + time.Millisecond)
		look("unknown, later", "c", false, 2, "")
		time.Sleep(schemasKeep + time.Second)
		broken = true
		look("of a server that cannot be asked", "b", false, 1, "Zone")
		look("once more", "b", false, 0, "Zone")
	})
}

// TestSchemasOfOneClient are not another's: a server may show each its own.
func TestSchemasOfOneClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c schemas
		asked := 0
		look := func(n int) string {
			ask := func(context.Context, []byte) ([]byte, error) {
				asked++
				return fmt.Appendf(nil, `{"tools":[{"name":"t","inputSchema":{"properties":{"r":{"x-mcp-header":"H%d"}}}}]}`, n), nil
			}
			time.Sleep(time.Millisecond)
			return c.of(t.Context(), [32]byte{byte(n >> 8), byte(n)}, ask, []byte("t"), false)[0].header
		}
		for range 3 {
			for n := range 3 {
				if got := look(n); got != fmt.Sprint("H", n) {
					t.Errorf("client %d is shown %s", n, got)
				}
			}
		}
		if asked != 3 {
			t.Errorf("asked %d times for three clients", asked)
		}
		for n := range 3 * schemasClients { // the first one keeps coming
			look(n)
			look(0)
			if len(c.clients) > schemasClients {
				t.Fatalf("%d clients are remembered", len(c.clients))
			}
		}
		if asked > 3*schemasClients+50 { // once more every minute
			t.Errorf("asked %d times", asked)
		}
	})
}

// TestSchemasAreAskedForOnce, for all who want to know; who gives up neither
// waits on nor keeps the others from it.
func TestSchemasAreAskedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c schemas
		var asked atomic.Int64
		ask := func(ctx context.Context, _ []byte) ([]byte, error) {
			asked.Add(1)
			select {
			case <-time.After(5 * time.Second):
				return []byte(`{"tools":[{"name":"t","inputSchema":{"properties":{"r":{"x-mcp-header":"Region"}}}}]}`), nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		look := func(patience time.Duration) <-chan string {
			out := make(chan string, 1)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			go func() { // ends with ctx
				defer cancel()
				began := time.Now()
				n := len(c.of(ctx, [32]byte{}, ask, []byte("t"), false))
				out <- fmt.Sprintf("%d after %v", n, time.Since(began))
			}()
			synctest.Wait()
			return out
		}
		first := look(2 * time.Second) // it asks, and gives up
		brief := look(time.Second)
		var others []<-chan string
		for range 10 {
			others = append(others, look(time.Minute))
		}
		if got := <-brief; got != "0 after 1s" {
			t.Errorf("who has no patience got %s", got)
		}
		if got := <-first; got != "0 after 2s" {
			t.Errorf("who asked first got %s", got)
		}
		for _, o := range others {
			if got := <-o; got != "1 after 7s" {
				t.Errorf("who waits got %s", got)
			}
		}
		if n := asked.Load(); n != 2 {
			t.Errorf("asked %d times", n)
		}
	})
}

// FuzzHeaders: no header makes the check panic, and it passes exactly where the
// decoded headers equal the body.
func FuzzHeaders(f *testing.F) {
	for _, seed := range [][2]string{
		{"a", "a"}, {"a", "b"}, {"=?base64?YQ==?=", "a"}, {"=?base64?YQ?=", "a"}, {"=?BASE64?YQ==?=", "a"}, {"=?base64?=", "=?base64?="}, {"=?base64??=", ""},
		{"", ""}, {"42", "42"}, {"42.0", "42"}, {"0x10", "16"}, {"1/1", "1"}, {"true", "true"}, {"\x00", "\x00"}, {"é", "é"}, {"=?base64?w6k=?=", "é"},
		{" a", "a"}, {"1e5", "100000"}, {"-0", "0"}, {"null", "null"}, {"=?base64?\n?=", ""}, {"007", "7"}, {"1.", "1"}, {".5", "0.5"},
	} {
		for kind := range uint8(3) {
			f.Add(seed[0], seed[1], kind)
		}
	}
	f.Fuzz(func(t *testing.T, header, body string, kind uint8) {
		quoted, err := json.Marshal(body)
		if err != nil {
			return
		}
		_ = json.Unmarshal(quoted, &body) // as it arrives: without what is no UTF-8
		value := string(quoted)
		if kind%3 == 2 { // a number, or nothing
			if !json.Valid([]byte(body)) || strings.IndexFunc(body, func(r rune) bool { return !strings.ContainsRune("-+.eE0123456789", r) }) >= 0 {
				return
			}
			value = body
		}
		method, params, named := "tools/call", `"name":"t","arguments":{"limit":`+value+`}`, "Mcp-Param-Limit"
		if kind%3 == 0 {
			method, params, named = "resources/read", `"uri":`+value, headerName
		}
		r := request(t, "MCP-Protocol-Version", "2026-07-28", "Mcp-Method", method)
		if kind%3 > 0 {
			r.Header.Set(headerName, "t")
		}
		r.Header[http.CanonicalHeaderKey(named)] = []string{header}
		m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params +
			`,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`))
		if err != nil {
			t.Fatalf("%q: %v", value, err)
		}
		ok := checked(known(mirroring), r, m) == nil
		if want := says(header, body, kind%3 == 2); ok != want {
			t.Errorf("header %q, body %s: accepted %v, want %v", header, value, ok, want)
		}
	})
}

// says is the rule again, put together another way.
func says(header, body string, number bool) bool {
	if strings.IndexFunc(header, func(r rune) bool { return r != '\t' && (r < ' ' || r > '~') }) >= 0 {
		return false
	}
	if len(header) >= 11 && header[:9] == "=?base64?" && header[len(header)-2:] == "?=" {
		b, err := base64.StdEncoding.DecodeString(header[9 : len(header)-2])
		if err != nil {
			return false
		}
		header = string(b)
	}
	if header == body {
		return true
	}
	return number && plainNumber(header) != "" && plainNumber(header) == plainNumber(body)
}

// plainNumber is a decimal number in its shortest spelling, "" if it is none
// that is told by its digits.
func plainNumber(s string) string {
	digits, negative := strings.CutPrefix(s, "-")
	whole, fraction, dotted := strings.Cut(digits, ".")
	for _, part := range []string{whole, fraction} {
		if len(part) > 32 || strings.Trim(part, "0123456789") != "" {
			return ""
		}
	}
	if whole == "" || dotted && fraction == "" {
		return ""
	}
	whole, fraction = strings.TrimLeft(whole, "0"), strings.TrimRight(fraction, "0")
	if negative && whole+fraction != "" {
		whole = "-" + whole
	}
	return whole + "." + fraction
}

// checked is Server.check by who sent the request.
func checked(s *Server, r *http.Request, m *jsonrpc.Message) *wire.Refusal {
	return s.check(r, m, wire.Principal(r))
}
