package holdfast_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// keyed is one way to give a call a key.
type keyed struct {
	name   string
	open   func(b *bench) *client
	modern bool
	header bool // the key is one; else it stands in _meta
	alone  bool // each connection is a client of its own
}

// keyedWays are all of them.
func keyedWays() (all []keyed) {
	for _, header := range []bool{true, false} {
		where := map[bool]string{true: " header", false: " meta"}[header]
		for _, v := range []string{v03, v06, v11} {
			all = append(all, keyed{"streamable " + v + where, func(b *bench) *client { return b.streamable(v) }, false, header, false})
		}
		all = append(all, keyed{"sse" + where, func(b *bench) *client { return b.legacy(v2024) }, false, header, false},
			keyed{"stateless" + where, newcomers["mcp"], true, header, false},
			keyed{"stateless sse" + where, newcomers["sse"], true, header, false})
	}
	return append(all, keyed{"stdio meta", func(b *bench) *client { return b.piped(v06) }, false, false, true},
		keyed{"stateless stdio meta", newcomers["stdio"], true, false, true})
}

// call sends a call of the tool under a key, with a token.
func (w keyed) call(c *client, id, tool, arguments, key string, header ...string) *stream {
	meta := `"progressToken":"t` + strings.Trim(id, `"`) + `"`
	switch {
	case key == "":
	case w.header:
		header = append(header, "Idempotency-Key", key)
	default:
		meta += fmt.Sprintf(`,"dev.holdfast/idempotencyKey":%q`, key)
	}
	if w.modern {
		message := modernCall(id, tool, arguments, meta)
		if c.endpoint != "" {
			return c.do("POST", c.endpoint, message, header...)
		}
		return c.sendModern(message, header...)
	}
	return c.send(toolCall(id, tool, arguments, `{`+meta+`}`), header...)
}

// each runs a test in every way, before servers of both eras where that matters.
func eachKeyed(t *testing.T, s func() setup, f func(t *testing.T, b *bench, w keyed)) {
	t.Helper()
	for _, w := range keyedWays() {
		t.Run(w.name, func(t *testing.T) {
			virtually(t, s(), func(t *testing.T, b *bench) { f(t, b, w) })
		})
		if !w.modern {
			continue
		}
		t.Run(w.name+", stateless server", func(t *testing.T) {
			s := s()
			s.farm.methods = modernOnly()
			virtually(t, s, func(t *testing.T, b *bench) { f(t, b, w) })
		})
	}
}

// two are two connections of one client, or the same twice where each would be
// another one.
func (w keyed) two(b *bench) (first, second *client) {
	first = w.open(b)
	if w.alone {
		return first, first
	}
	return first, w.open(b)
}

func TestKeyWhileRunning(t *testing.T) {
	eachKeyed(t, func() setup { return setup{farm: jobs()} }, func(t *testing.T, b *bench, w keyed) {
		first, second := w.two(b)
		w.call(first, "1", "job", args, "k<1>")
		<-time.After(time.Second)
		w.call(second, `"2"`, "job", sameArgs, "k<1>")
		w.call(second, "3", "job", sameArgs, "another") // equal, but meant
		w.call(second, "4", "job", sameArgs, "")
		wantAnswer(t, first.answer("1"), done, "!adopted")
		wantAnswer(t, second.answer(`"2"`), done, adopted)
		wantAnswer(t, second.answer("3"), done, "!adopted")
		wantAnswer(t, second.answer("4"), done, "!adopted")
		wantProgress(t, first, `"t1"`, "1", "2")
		for _, token := range []string{`"t2"`, `"t3"`, `"t4"`} {
			wantProgress(t, second, token, "1", "2")
		}
		wantExecuted(t, b.farm, "job", 3)
		wantCancels(t, b.farm)
	})
}

func TestKeyAfterTheEnd(t *testing.T) {
	s := func() setup {
		return setup{farm: jobs(), options: holdfast.Options{Timers: holdfast.Timers{ResultTTL: 5 * time.Minute}}}
	}
	eachKeyed(t, s, func(t *testing.T, b *bench, w keyed) {
		first, second := w.two(b)
		w.call(first, "1", "job", args, "k")
		wantAnswer(t, first.answer("1"), done, "!adopted")
		for i := range 3 {
			<-time.After(99 * time.Second)
			id := fmt.Sprint(10 + i)
			begin := time.Now()
			w.call(second, id, "job", sameArgs, "k")
			wantAnswer(t, second.answer(id), done, adopted)
			if d := time.Since(begin); d > time.Second {
				t.Errorf("the answer that there was came after %v", d)
			}
		}
		wantExecuted(t, b.farm, "job", 1)
		<-time.After(5 * time.Second) // it is kept from the end on, not from the last time on
		w.call(second, "20", "job", sameArgs, "k")
		wantAnswer(t, second.answer("20"), done, "!adopted")
		wantExecuted(t, b.farm, "job", 2)
	})
}

// A key belongs to one call: another one under it is refused, whatever has
// become of the first.
func TestKeyOfAnotherCall(t *testing.T) {
	eachKeyed(t, func() setup { return setup{farm: jobs()} }, func(t *testing.T, b *bench, w keyed) {
		first, second := w.two(b)
		w.call(first, "1", "job", args, "k")
		<-time.After(time.Second)
		for i, state := range []string{"running", "answered"} {
			for j, tt := range []struct{ tool, arguments string }{{"job", otherArgs}, {"echo", args}} {
				id := fmt.Sprintf(`"%s %d"`, state, j)
				w.call(second, id, tt.tool, tt.arguments, "k")
				wantAnswer(t, second.answer(id), `"error":{"code":-32600`, "idempotency key", `"outcome":"not_executed"`)
			}
			if i == 0 {
				wantAnswer(t, first.answer("1"), done)
			}
		}
		w.call(second, "90", "job", args, strings.Repeat("k", 257))
		wantAnswer(t, second.answer("90"), `"error"`, "256 bytes", `"outcome":"not_executed"`)
		wantExecuted(t, b.farm, "echo", 0)
		wantExecuted(t, b.farm, "job", 1)
	})
}

// A client that goes leaves a call with a key behind in every era, and finds it
// again.
func TestKeyLingers(t *testing.T) {
	eachKeyed(t, func() setup { return setup{farm: jobs()} }, func(t *testing.T, b *bench, w keyed) {
		if w.alone {
			return // what it is connected by is all that there is of it
		}
		first := w.open(b)
		s := w.call(first, "1", "job", args, "k")
		<-time.After(time.Second)
		first.lose(s, "1")
		<-time.After(time.Second)
		second := w.open(b)
		w.call(second, "2", "job", sameArgs, "k")
		wantAnswer(t, second.answer("2"), done, adopted)
		wantProgress(t, second, `"t2"`, "1", "2")
		wantExecuted(t, b.farm, "job", 1)
		wantCancels(t, b.farm)
		// And so after its end.
		s = w.call(second, "3", "job", args, "k3")
		<-time.After(time.Second)
		second.lose(s, "3")
		<-time.After(5 * time.Minute)
		third := w.open(b)
		w.call(third, "4", "job", sameArgs, "k3")
		wantAnswer(t, third.answer("4"), done, adopted)
		wantExecuted(t, b.farm, "job", 2)
		wantCancels(t, b.farm)
	})
}

// If it does not come back, the call is cancelled after the grace, and the key
// is free.
func TestKeyIsFreeAfterTheGrace(t *testing.T) {
	s := func() setup {
		f := &farm{tools: map[string]func(*fakeCall){"job": func(c *fakeCall) {
			c.pause(150 * time.Second)
			c.reply(`{"structuredContent":"done"}`)
		}}}
		return setup{farm: f, options: holdfast.Options{Timers: holdfast.Timers{OrphanGrace: time.Minute, ReconnectGrace: time.Hour}}}
	}
	eachKeyed(t, s, func(t *testing.T, b *bench, w keyed) {
		if w.alone || w.modern && w.open(b).endpoint != "" { // there the session has the stream
			return
		}
		first, second := w.two(b)
		s := w.call(first, "1", "job", args, "k")
		<-time.After(time.Second)
		first.lose(s, "1")
		<-time.After(59 * time.Second)
		wantCancels(t, b.farm)
		<-time.After(2 * time.Second)
		wantCancels(t, b.farm, `"job"`)
		w.call(second, "2", "job", args, "k")
		wantAnswer(t, second.answer("2"), done, "!adopted")
		wantExecuted(t, b.farm, "job", 2)
	})
}

// Nobody comes upon another's call by its key.
func TestKeysOfOthers(t *testing.T) {
	eachKeyed(t, func() setup { return setup{farm: jobs()} }, func(t *testing.T, b *bench, w keyed) {
		if w.alone {
			return
		}
		var clients []*client
		for _, who := range []string{"Bearer a", "Bearer b", ""} {
			c := b.client()
			if who != "" {
				c.header.Set("Authorization", who)
			}
			switch {
			case strings.Contains(w.name, "sse"):
				c.listen("/sse", "")
				fallthrough
			case !w.modern:
				if !w.modern {
					c.handshake(v06, "{}")
				}
			}
			clients = append(clients, c)
		}
		for range 2 { // while it runs, and afterwards
			for i, c := range clients {
				w.call(c, fmt.Sprint(len(c.asked)), "job", fmt.Sprintf(`{"a":%d}`, i), "k")
			}
			<-time.After(10 * time.Second)
		}
		for _, c := range clients {
			if n := len(c.find(done)); n != 2 || len(c.find(adopted)) != 1 {
				t.Errorf("%d answers, adopted: %v", n, c.find(adopted))
			}
		}
		wantExecuted(t, b.farm, "job", 3)
	})
}

// mortal makes servers with a tool that ends its server, and one that works.
func mortal() *farm {
	f := jobs()
	f.tools["die"] = func(c *fakeCall) {
		c.pause(time.Second)
		_ = c.k.w.(io.Closer).Close()
	}
	return f
}

// What died under a key may have been executed: it is never executed again.
func TestKeyOfACallThatDied(t *testing.T) {
	eachKeyed(t, func() setup { return setup{farm: mortal()} }, func(t *testing.T, b *bench, w keyed) {
		first, second := w.two(b)
		w.call(first, "1", "die", args, "k")
		wantAnswer(t, first.answer("1"), `"code":-32603`, `"outcome":"unknown"`)
		<-time.After(10 * time.Second)
		for i := range 2 {
			id := fmt.Sprint(i + 2)
			w.call(second, id, "die", sameArgs, "k")
			wantAnswer(t, second.answer(id), `"code":-32603`, `"outcome":"unknown"`)
		}
		wantExecuted(t, b.farm, "die", 1)
		w.call(second, "9", "job", args, "k9") // it is served again
		wantAnswer(t, second.answer("9"), done)
	})
}

// What has not been executed does not use up its key.
func TestKeyOfACallThatNeverBegan(t *testing.T) {
	s := func() setup { return setup{farm: mortal()} }
	eachKeyed(t, s, func(t *testing.T, b *bench, w keyed) {
		if w.modern && strings.Contains(t.Name(), "stateless_server") {
			return // another server takes it at once
		}
		c := w.open(b)
		id := 0
		next := func() string { id++; return fmt.Sprint(id) }
		for down := false; !down && id < 40; { // until the server is not started again at once
			w.call(c, next(), "die", `{}`, "")
			c.answer(fmt.Sprint(id))
			w.call(c, next(), "echo", `{}`, "")
			down = strings.Contains(c.answer(fmt.Sprint(id)), `"outcome":"not_executed"`)
		}
		w.call(c, next(), "job", args, "k")
		wantAnswer(t, c.answer(fmt.Sprint(id)), `"outcome":"not_executed"`)
		<-time.After(2 * time.Minute)
		w.call(c, next(), "job", args, "k")
		wantAnswer(t, c.answer(fmt.Sprint(id)), done, "!adopted")
		wantExecuted(t, b.farm, "job", 1)
	})
}

// Of those who wait for one execution each may leave; the last one takes it along.
func TestKeyCancelledByOneOfTwo(t *testing.T) {
	eachKeyed(t, func() setup { return setup{farm: jobs()} }, func(t *testing.T, b *bench, w keyed) {
		first, second := w.two(b)
		posted := map[string]*stream{"1": w.call(first, "1", "job", args, "k")}
		<-time.After(100 * time.Millisecond)
		posted["2"] = w.call(second, "2", "job", args, "k")
		posted["3"] = w.call(second, "3", "job", args, "other")
		<-time.After(time.Second)
		byStream := w.modern && strings.HasPrefix(w.name, "stateless ") && !strings.Contains(w.name, "s sse") && !w.alone
		cancel := func(c *client, id string) {
			if byStream {
				return // where closing the stream is how to cancel, a key says otherwise
			}
			c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`).done()
			if strings.HasPrefix(w.name, "streamable") {
				wantAnswer(t, c.answer(id), `"code":-32800`)
			} else {
				c.waive(id)
			}
		}
		cancel(first, "1")
		<-time.After(100 * time.Millisecond)
		wantCancels(t, b.farm)
		cancel(second, "3")
		wantAnswer(t, second.answer("2"), done)
		if byStream {
			return
		}
		b.within(bound, "one cancellation", func() bool { return len(b.farm.told("notifications/cancelled")) == 1 })
		call := b.farm.told("tools/call")
		if got := b.farm.told("notifications/cancelled")[0]; raw(got, jsonrpc.RequestID) != raw(call[1], jsonrpc.ID) && len(b.farm.all()) == 1 {
			t.Errorf("told %s after %q", got, call)
		}
		wantExecuted(t, b.farm, "job", 2)
		w.call(second, "4", "job", args, "other") // cancelled, so its key is free
		wantAnswer(t, second.answer("4"), done, "!adopted")
		wantExecuted(t, b.farm, "job", 3)
	})
}
