package remote

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestCase69RequestsMirrorTheirHeaders(t *testing.T) {
	play(t, Options{}, func(_ *stage, w http.ResponseWriter, _ *http.Request, got seen) {
		if got.is("tools/list") {
			writeJSON(w, got.id(), `{"resultType":"complete","tools":[{"name":"book","inputSchema":{"properties":{"city":{"type":"string","x-mcp-header":"City"}}}}]}`)
			return
		}
		writeJSON(w, got.id(), `{"resultType":"complete"}`)
	}, func(s *stage) {
		s.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{%s}}`, modernRaw)
		s.await("1", time.Second)
		s.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"book","arguments":{"city":"Łódź"},%s}}`, modernRaw)
		s.await("2", time.Second)
		h := s.posts("tools/call")[0].header
		for name, want := range map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "book",
			"Mcp-Param-City": "=?base64?xYHDs2TFug==?=", "Mcp-Session-Id": ""} {
			if got := h.Get(name); got != want {
				s.Errorf("%s: %q, want %q", name, got, want)
			}
		}
	})
}

func TestCase69HeaderMismatchLooksAtTheToolsAgain(t *testing.T) {
	for _, helps := range []bool{true, false} {
		play(t, Options{}, func(_ *stage, w http.ResponseWriter, _ *http.Request, got seen) {
			switch {
			case got.is("tools/list"):
				header := "City"
				if !helps {
					header = "not a name"
				}
				if !strings.Contains(string(got.m.Bytes()), "cursor") {
					writeJSON(w, got.id(), `{"resultType":"complete","tools":[],"nextCursor":"2"}`)
					return
				}
				writeJSON(w, got.id(), `{"resultType":"complete","tools":[{"name":"book","inputSchema":{"properties":{"city":{"type":"string","x-mcp-header":"`+header+`"}}}}]}`)
			case got.header.Get("Mcp-Param-City") == "":
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusBadRequest)
				_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32020,"message":"Mcp-Param-City is missing"}}`, got.id())
			default:
				writeJSON(w, got.id(), `{"resultType":"complete"}`)
			}
		}, func(s *stage) {
			s.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"book","arguments":{"city":"Rome"},%s}}`, modernRaw)
			got := s.await("2", time.Second)
			if want := map[bool]string{true: `"result"`, false: "-32020"}[helps]; !strings.Contains(got, want) {
				s.Errorf("%s, want %s", got, want)
			}
			if lines := s.all(); len(lines) != 1 {
				s.Errorf("handed up: %q", lines)
			}
			if n := len(s.posts("tools/call")); n > 2 {
				s.Errorf("sent %d times", n)
			}
		})
	}
}

func TestCase13ModernCancelClosesTheStream(t *testing.T) {
	var ended atomic.Bool
	play(t, Options{}, func(_ *stage, w http.ResponseWriter, r *http.Request, got seen) {
		say(w, "data: "+progress+"\n\n")
		<-r.Context().Done()
		ended.Store(true)
	}, func(s *stage) {
		s.send(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"x",%s}}`, modernRaw)
		synctest.Wait()
		s.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`)
		synctest.Wait()
		time.Sleep(time.Second)
		if !ended.Load() {
			s.Error("the stream is still open")
		}
		if n := len(s.posts("notifications/cancelled")); n != 0 {
			s.Errorf("%d notifications", n)
		}
		if got := s.answers("5"); len(got) != 0 {
			s.Errorf("answered: %q", got)
		}
	})
}

func TestCase14LegacyCancelFollowsItsRequest(t *testing.T) {
	var ended atomic.Bool
	play(t, Options{}, legacy(func(_ *stage, w http.ResponseWriter, r *http.Request, got seen) {
		if got.is("tools/call") {
			say(w, "id: 1\ndata: "+progress+"\n\n")
			<-r.Context().Done()
			ended.Store(true)
		}
	}), func(s *stage) {
		s.handshake()
		s.send(call5)
		s.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`)
		time.Sleep(time.Minute)
		all := s.requests(func(r seen) bool { return r.is("tools/call") || r.is("notifications/cancelled") })
		switch {
		case len(all) == 0: // taken back before it left
		case len(all) != 2 || !all[0].is("tools/call"):
			s.Errorf("%v", all)
		case !ended.Load():
			s.Error("the cancelled request's stream is still open")
		}
		if got := s.answers("5"); len(got) != 0 {
			s.Errorf("answered: %q", got)
		}
		if n := len(s.requests(func(r seen) bool { return r.header.Get("Last-Event-Id") != "" })); n != 0 {
			s.Errorf("%d resumptions of a cancelled request", n)
		}
	})
}

func TestCase14CancelDoesNotOvertake(t *testing.T) {
	var slow atomic.Bool
	var on *stage
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		if slow.Load() {
			time.Sleep(2 * time.Second)
		}
		return on.ln.Dial(ctx, network, address)
	}
	play(t, Options{DialContext: dial}, legacy(func(_ *stage, _ http.ResponseWriter, r *http.Request, got seen) {
		if got.is("tools/call") {
			<-r.Context().Done()
		}
	}), func(s *stage) {
		on = s
		s.send(hello)
		s.await("1", time.Second)
		time.Sleep(10 * time.Second) // the pool is empty
		slow.Store(true)
		s.send(call5)
		time.Sleep(time.Second)
		slow.Store(false)
		s.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`)
		time.Sleep(time.Minute)
		all := s.requests(func(r seen) bool { return r.is("tools/call") || r.is("notifications/cancelled") })
		if len(all) != 2 || !all[0].is("tools/call") {
			s.Errorf("%v", all)
		}
	})
}

func TestCancelledBeforeItLeft(t *testing.T) {
	play(t, Options{}, legacy(func(_ *stage, _ http.ResponseWriter, _ *http.Request, got seen) {
		if got.is("initialize") {
			time.Sleep(2 * time.Second)
		}
	}), func(s *stage) {
		s.send(hello)
		s.send(call5)
		s.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`)
		s.await("1", 5*time.Second)
		time.Sleep(time.Second)
		if n := len(s.posts("tools/call")) + len(s.posts("notifications/cancelled")); n != 0 {
			s.Errorf("%d messages left", n)
		}
	})
}

func TestSubscriptionIsOpenedAgain(t *testing.T) {
	times := 0
	play(t, Options{}, func(_ *stage, w http.ResponseWriter, r *http.Request, got seen) {
		times++
		meta := `"_meta":{"io.modelcontextprotocol/subscriptionId":` + got.id() + `}`
		say(w, `data: {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{},`+meta+"}}\n\n")
		say(w, `data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{`+meta+"}}\n\n")
		if times == 3 {
			say(w, `data: {"jsonrpc":"2.0","id":`+got.id()+`,"result":{"resultType":"complete"}}`+"\n\n")
			<-r.Context().Done()
		}
	}, func(s *stage) {
		s.send(`{"jsonrpc":"2.0","id":5,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},%s}}`, modernRaw)
		s.await("5", 10*time.Second)
		time.Sleep(time.Minute)
		if n := len(s.got("notifications/subscriptions/acknowledged")); n != 1 {
			s.Errorf("%d acknowledgements", n)
		}
		if n := len(s.got("notifications/tools/list_changed")); n != 3 || times != 3 {
			s.Errorf("%d notifications over %d streams", n, times)
		}
	})
}

func TestSubscriptionThatIsRefused(t *testing.T) {
	play(t, Options{}, func(_ *stage, w http.ResponseWriter, _ *http.Request, got seen) {
		w.WriteHeader(http.StatusNotFound)
	}, func(s *stage) {
		s.send(`{"jsonrpc":"2.0","id":5,"method":"subscriptions/listen","params":{%s}}`, modernRaw)
		s.must(s.await("5", time.Second), notExecuted)
	})
}
