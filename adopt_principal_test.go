package holdfast_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast"
)

// from makes a middleware by which requests seem to come to, or from, another
// address than loopback.
func from(local, remote string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if local != "" {
				addr := &net.TCPAddr{IP: net.ParseIP(local), Port: 80}
				r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(addr)))
			}
			if remote != "" {
				r.RemoteAddr = net.JoinHostPort(remote, "4711")
			}
			next.ServeHTTP(w, r)
		})
	}
}

// visit opens a session as a client of a name and version, with headers on each
// of its requests.
func (b *bench) visit(binding, info string, header ...string) *client {
	b.t.Helper()
	c := b.client()
	for i := 0; i < len(header); i += 2 {
		c.header.Set(header[i], header[i+1])
	}
	if binding == "sse" {
		c.listen("/sse", "")
	}
	s := c.send(body(`"hello"`, "initialize", fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{},"clientInfo":%s}`, v11, info)))
	wantAnswer(b.t, c.answer(`"hello"`), `"result":`)
	if id := s.open().header.Get("Mcp-Session-Id"); id != "" {
		c.header.Set("Mcp-Session-Id", id)
	}
	c.send(initialized).done()
	return c
}

// Where who comes back may be somebody else, nothing is shared across sessions;
// within its own session a client still finds its call.
func TestAdoptOfOthersIsRefused(t *testing.T) {
	const me = `{"name":"raw","version":"1"}`
	for name, tt := range map[string]struct {
		old, young []string // clientInfo, then headers
		wrap       func(http.Handler) http.Handler
		arguments  string
		adopts     bool
	}{
		"the same":                     {[]string{me}, []string{`{"version":"1","title":"more","name":"raw"}`}, nil, sameArgs, true},
		"other arguments":              {[]string{me}, []string{me}, nil, otherArgs, false},
		"another name":                 {[]string{me}, []string{`{"name":"row","version":"1"}`}, nil, args, false},
		"another version":              {[]string{me}, []string{`{"name":"raw","version":"2"}`}, nil, args, false},
		"X-Forwarded-For":              {[]string{me, "X-Forwarded-For", "192.0.2.7"}, []string{me, "X-Forwarded-For", "192.0.2.7"}, nil, args, false},
		"Forwarded":                    {[]string{me, "Forwarded", "for=192.0.2.7"}, []string{me, "Forwarded", "for=192.0.2.7"}, nil, args, false},
		"Via":                          {[]string{me, "Via", "1.1 proxy"}, []string{me, "Via", "1.1 proxy"}, nil, args, false},
		"forwarded afterwards":         {[]string{me}, []string{me, "X-Real-Ip", "192.0.2.7"}, nil, args, false},
		"other credentials":            {[]string{me, "Authorization", "Bearer a"}, []string{me, "Authorization", "Bearer b"}, nil, args, false},
		"to an address of the world":   {[]string{me}, []string{me}, from("192.0.2.1", ""), args, false},
		"from an address of the world": {[]string{me}, []string{me}, from("", "192.0.2.7"), args, false},
	} {
		for _, binding := range []string{"streamable", "sse"} {
			t.Run(name+" "+binding, func(t *testing.T) {
				virtually(t, setup{farm: jobs(), wrap: tt.wrap}, func(t *testing.T, b *bench) {
					old, c := b.visit(binding, tt.old[0], tt.old[1:]...), b.visit(binding, tt.young[0], tt.young[1:]...)
					old.lose(old.send(job("1", args)), "1")
					<-time.After(100 * time.Millisecond)
					runs, mark := 2, "!adopted"
					if tt.adopts {
						runs, mark = 1, adopted
					}
					wantAnswer(t, c.ask(job("1", tt.arguments)), done, mark)
					wantExecuted(t, b.farm, "job", runs)
					if binding == "streamable" {
						old.ask(body("2", "tools/list", "")) // it lives
					}
				})
			})
		}
	}
}

// In its own session a client finds its call wherever it comes from.
func TestAdoptWithinTheSession(t *testing.T) {
	for name, s := range map[string]setup{
		"loopback": {}, "the world": {wrap: from("192.0.2.1", "192.0.2.7")}, "shared": {options: holdfast.Options{Server: holdfast.Server{Isolation: holdfast.Shared}}},
	} {
		t.Run(name, func(t *testing.T) {
			s.farm = jobs()
			overHTTP(t, s, func(t *testing.T, b *bench, open func() *client) {
				c := open()
				s := c.send(job("1", args))
				<-time.After(time.Second)
				if c.endpoint == "" {
					s.cut()
					s.done()
				} else {
					c.main.cut()
					c.main.done()
				}
				<-time.After(100 * time.Millisecond)
				c.send(job("2", sameArgs))
				<-time.After(100 * time.Millisecond)
				if c.endpoint == "" {
					c.listen("/mcp", s.position())
				} else {
					c.listen("/sse", c.main.position())
				}
				wantAnswer(t, c.answer("2"), done, adopted)
				wantAnswer(t, c.answer("1"), `"code":-32800`, `{"outcome":"adopted"}`) // whoever waits for it yet
				wantProgress(t, c, `"t2"`, "1", "2")
				wantExecuted(t, b.farm, "job", 1)
				wantCancels(t, b.farm)
			})
		})
	}
}

// A tool's rule forbids it, or asks for a key.
func TestAdoptRulesOfATool(t *testing.T) {
	for name, tt := range map[string]struct {
		rule  holdfast.Adopt
		keyed bool
		runs  int
	}{
		"auto": {holdfast.AdoptAuto, false, 1}, "auto, by a key": {holdfast.AdoptAuto, true, 1},
		"key": {holdfast.AdoptByKey, false, 2}, "key, by a key": {holdfast.AdoptByKey, true, 1},
		"never": {holdfast.AdoptNever, false, 2}, "never, by a key": {holdfast.AdoptNever, true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := tooled(jobs(), holdfast.Tool{Name: "j*b", Adopt: tt.rule}, holdfast.Timers{})
			overHTTP(t, s, func(t *testing.T, b *bench, open func() *client) {
				var key []string
				if tt.keyed {
					key = []string{"Idempotency-Key", "k"}
				}
				old := open()
				s := old.send(job("1", args), key...).open()
				old.lose(s, "1")
				<-time.After(100 * time.Millisecond)
				c := open()
				c.send(job("1", args), key...)
				mark := adopted
				if tt.runs > 1 {
					mark = "!adopted"
				}
				wantAnswer(t, c.answer("1"), done, mark)
				wantExecuted(t, b.farm, "job", tt.runs)
			})
		})
	}
}

// A client whose connection looks open, but which has ceased to answer pings
// that it used to answer: its call may be joined, until it answers again.
func TestAdoptFromAHalfOpenConnection(t *testing.T) {
	timers := holdfast.Timers{PingInterval: 2 * time.Second, PingTimeout: time.Second}
	f := &farm{tools: map[string]func(*fakeCall){"job": func(c *fakeCall) {
		c.pause(time.Minute)
		c.reply(`{"structuredContent":"done"}`)
	}}}
	for name, runs := range map[string]int{"it has gone": 1, "it answers again": 2, "it never answered": 2, "it refuses them": 2, "it speaks": 2} {
		t.Run(name, func(t *testing.T) {
			overHTTP(t, setup{farm: f, options: holdfast.Options{Timers: timers}}, func(t *testing.T, b *bench, open func() *client) {
				testHalfOpen(t, b, open, name, runs)
			})
		})
	}
}

func testHalfOpen(t *testing.T, b *bench, open func() *client, name string, runs int) {
	old := open()
	old.send(job("1", args))
	pong := `"result":{}`
	if name == "it refuses them" {
		pong = `"error":{"code":-32601,"message":"what?"}`
	}
	if name != "it never answered" {
		stop := old.answerPings(pong)
		<-time.After(10 * time.Second)
		stop()
	}
	silent := len(old.find(`"method":"ping"`))
	<-time.After(10 * time.Second)
	if n := len(old.find(`"method":"ping"`)); n == silent && name != "it refuses them" {
		t.Fatal("the client was sent no more pings")
	}
	switch name {
	case "it answers again":
		old.answerPings(pong)()
	case "it speaks":
		old.ask(body("0", "tools/list", ""))
	}
	c := open()
	stop := c.answerPings(`"result":{}`)
	defer stop()
	mark := "!adopted"
	if runs == 1 {
		mark = adopted
	}
	wantAnswer(t, c.ask(job("2", args)), done, mark)
	if runs == 1 {
		wantAnswer(t, old.answer("1"), `"code":-32800`, `{"outcome":"adopted"}`)
	} else {
		wantAnswer(t, old.answer("1"), done)
	}
	wantExecuted(t, b.farm, "job", runs)
	wantCancels(t, b.farm)
}
