package session

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast/eventlog"
)

// upTo lists from, from+1 ... to.
func upTo(from, to eventlog.Seq) (out []eventlog.Seq) {
	for seq := from; seq <= to; seq++ {
		out = append(out, seq)
	}
	return out
}

func TestReplayAndLiveAreOneLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, conv := open(t, registry(RegistryOptions{}), false)
		st, call := ask(t, s, conv, "1")
		st.Name()
		for n := range 5 {
			s.Message(call, note(n))
		}
		c := connect(t, st, 0, false)
		synctest.Wait()
		for n := range 5 {
			s.Message(call, note(n+5))
			synctest.Wait()
		}
		answer(call)
		if err := <-c.ended; err != nil {
			t.Errorf("the stream ended with %v", err)
		}
		if got := c.seqs(); !slices.Equal(got, upTo(1, 11)) {
			t.Errorf("events %v", got)
		}
		for after := range eventlog.Seq(12) { // the same from anywhere, once more
			again := connect(t, st, after, false)
			if err := <-again.ended; err != nil || !slices.Equal(again.seqs(), upTo(after+1, 11)) {
				t.Errorf("after %d: %v, %v", after, again.seqs(), err)
			}
		}
	})
}

func TestHeartbeatOnlyWhenQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := open(t, registry(RegistryOptions{}), false)
		c := connect(t, s.General(), 0, true)
		for range 20 { // 60 s with an event each 3 s
			time.Sleep(3 * time.Second)
			s.Message(nil, note(1))
			synctest.Wait()
		}
		if strings.Contains(c.text(), "~") {
			t.Errorf("heartbeats on a busy stream:\n%s", c.text())
		}
		time.Sleep(35 * time.Second) // due 10, 20, 30 s after the last event
		synctest.Wait()
		if n := strings.Count(c.text(), "~"); n != 3 {
			t.Errorf("%d heartbeats in 35 s of silence, want 3", n)
		}
		s.Message(nil, note(2)) // starts the silence over
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if n := strings.Count(c.text(), "~"); n != 3 {
			t.Errorf("a heartbeat less than 10 s after an event")
		}
		_ = c.leave()
	})
}

// TestHeartbeatsWhileParked: a connection that waits for its turn is quiet, so
// it needs them most.
func TestHeartbeatsWhileParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := open(t, registry(RegistryOptions{}), false)
		first := connect(t, s.General(), 0, true)
		second := connect(t, s.General(), 0, true)
		for range 10 {
			time.Sleep(5 * time.Second)
			s.Message(nil, note(1))
		}
		synctest.Wait()
		if n := strings.Count(first.text(), "~"); n != 5 {
			t.Errorf("%d heartbeats in 50 s on the stream that waits, want 5", n)
		}
		_, _ = first.leave(), second.leave()
	})
}

func TestSuperseded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, conv := open(t, registry(RegistryOptions{}), false)
		st, call := ask(t, s, conv, "1")
		st.Name()
		s.Message(call, note(1))
		first := connect(t, st, 0, false)
		synctest.Wait()
		second := connect(t, st, 1, false)
		if err := <-first.ended; !errors.Is(err, ErrSuperseded) {
			t.Errorf("the first reader ended with %v", err)
		}
		s.Message(call, note(2))
		answer(call)
		if err := <-second.ended; err != nil {
			t.Errorf("the second reader ended with %v", err)
		}
		if !slices.Equal(first.seqs(), upTo(1, 1)) || !slices.Equal(second.seqs(), upTo(2, 3)) {
			t.Errorf("first %v, second %v", first.seqs(), second.seqs())
		}
		// A resumption takes over from those of the general stream, too.
		old := connect(t, s.General(), 0, true)
		_ = connect(t, s.General(), 0, false)
		if err := <-old.ended; !errors.Is(err, ErrSuperseded) {
			t.Errorf("the GET stream ended with %v", err)
		}
		s.End(ErrDeleted)
	})
}

// TestParking: several GET streams may be open. One delivers; the one before it
// takes over when it ends, where it ended.
func TestParking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := open(t, registry(RegistryOptions{}), false)
		say := func(n int) {
			s.Message(nil, note(n))
			synctest.Wait()
		}
		first := connect(t, s.General(), 0, true)
		say(1)
		second := connect(t, s.General(), 0, true)
		say(2)
		third := connect(t, s.General(), 0, true)
		say(3)
		if err := second.leave(); !errors.Is(err, errGone) { // one that waits
			t.Errorf("left with %v", err)
		}
		say(4)
		_ = third.leave() // the one that delivers
		say(5)
		fourth := connect(t, s.General(), 0, true)
		say(6)
		_ = fourth.leave()
		_ = connect(t, s.General(), 0, true).leave() // in and out again
		say(7)
		_ = first.leave()
		say(8) // waits for a reader
		fifth := connect(t, s.General(), 0, true)
		synctest.Wait()
		for name, tc := range map[string]struct {
			c    *connection
			want []eventlog.Seq
		}{
			"first": {first, []eventlog.Seq{1, 5, 7}}, "second": {second, []eventlog.Seq{2}}, "third": {third, []eventlog.Seq{3, 4}},
			"fourth": {fourth, []eventlog.Seq{6}}, "fifth": {fifth, []eventlog.Seq{8}},
		} {
			if got := tc.c.seqs(); !slices.Equal(got, tc.want) {
				t.Errorf("%s got %v, want %v", name, got, tc.want)
			}
		}
		_ = fifth.leave()
	})
}

// TestParkingIsBounded: the oldest that waits gives way.
func TestParkingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := open(t, registry(RegistryOptions{Limits: Limits{Open: 3}}), false)
		var all []*connection
		for range 5 {
			all = append(all, connect(t, s.General(), 0, true))
			synctest.Wait()
		}
		for i, c := range all[:2] {
			if err := <-c.ended; !errors.Is(err, ErrSuperseded) {
				t.Errorf("reader %d ended with %v", i, err)
			}
		}
		s.End(ErrDeleted)
		for i, c := range all[2:4] {
			if err := <-c.ended; !errors.Is(err, ErrDeleted) {
				t.Errorf("reader %d, waiting, ended with %v", i+2, err)
			}
		}
		if err := <-all[4].ended; err != nil {
			t.Errorf("the last reader ended with %v", err)
		}
	})
}

// TestOneStreamEach opens and closes GET streams while messages come: each is
// written to one of them, once (2025-11-25 basic/transports, "Multiple
// Connections").
func TestOneStreamEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const messages = 2000
		s, _ := open(t, registry(RegistryOptions{Limits: Limits{Stream: eventlog.Limits{Events: messages, Bytes: 1 << 30}}}), false)
		done := make(chan struct{})
		go func() { // ends after the last message
			defer close(done)
			for n := range messages {
				s.Message(nil, note(n))
				if n%10 == 0 {
					time.Sleep(time.Microsecond)
				}
			}
		}()
		var all, live []*connection
		for i := 0; ; i++ {
			c := connect(t, s.General(), 0, true)
			all, live = append(all, c), append(live, c)
			time.Sleep(3 * time.Microsecond)
			if len(live) > 4 {
				// Leaving is between two writes here: what a broken write had
				// begun is not known to have arrived, and is written again.
				synctest.Wait()
				n := i % len(live)
				_ = live[n].leave()
				live = slices.Delete(live, n, n+1)
			}
			select {
			case <-done:
			default:
				continue
			}
			break
		}
		synctest.Wait()
		times := map[eventlog.Seq]int{}
		for _, c := range all {
			for _, seq := range c.seqs() {
				times[seq]++
			}
		}
		for seq := range eventlog.Seq(messages) {
			if n := times[seq+1]; n != 1 {
				t.Errorf("message %d was written %d times", seq+1, n)
			}
		}
		for _, c := range live {
			_ = c.leave()
		}
	})
}

// TestHandOverWaitsForTheWrite: what the stream before is just writing is not
// written to the next one too; what it failed to write is.
func TestHandOverWaitsForTheWrite(t *testing.T) {
	for _, fail := range []error{nil, errGone} {
		t.Run(fmt.Sprint(fail), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := open(t, registry(RegistryOptions{}), false)
				first := connect(t, s.General(), 0, true)
				synctest.Wait()
				first.mu.Lock()
				first.slow, first.fail = time.Second, fail
				first.mu.Unlock()
				s.Message(nil, note(1))
				synctest.Wait() // the write is under way
				second := connect(t, s.General(), 0, true)
				synctest.Wait()
				s.Message(nil, note(2))
				time.Sleep(2 * time.Second)
				synctest.Wait()
				got := append(first.seqs(), second.seqs()...)
				if !slices.Equal(got, upTo(1, 2)) {
					t.Errorf("first %v, second %v", first.seqs(), second.seqs())
				}
				s.End(ErrDeleted)
			})
		})
	}
}

// TestTrimmedPosition: the stream goes on from the oldest retained event, after
// a message that says what is missing. Answers are not trimmed.
func TestTrimmedPosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, conv := open(t, registry(RegistryOptions{Limits: Limits{Stream: eventlog.Limits{Events: 3}}}), false)
		st := s.Post(2, true)
		s.Take(st, message(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`))
		one := conv.last(t)
		s.Take(st, message(t, `{"jsonrpc":"2.0","id":2,"method":"tools/call"}`))
		two := conv.last(t)
		st.Name()
		s.Message(one, note(1)) // 1
		s.Message(one, note(2)) // 2
		answer(one)             // 3, kept
		for n := range 10 {
			s.Message(two, note(n)) // 4 to 13
		}
		got, pos, err := s.Find(st.EventID(1))
		if err != nil || got != st || pos != 1 {
			t.Fatalf("a trimmed position is %v, %d, %v", got, pos, err)
		}
		c := connect(t, got, pos, false)
		synctest.Wait()
		first, _, _ := strings.Cut(c.text(), "\n")
		if !strings.HasPrefix(first, `0 {"jsonrpc":"2.0","method":"notifications/message"`) || !strings.Contains(first, "9 messages between event 1-1 and the next") {
			t.Errorf("the loss reads %s", first)
		}
		if got := c.seqs(); !slices.Equal(got, []eventlog.Seq{0, 3, 12, 13}) {
			t.Errorf("events %v", got)
		}
		answer(two)
		if err := <-c.ended; err != nil {
			t.Error(err)
		}
	})
}

// TestEndWhileAPostOpensItsStream: the answer that the end of the session brings
// is delivered although nobody reads yet, and nothing is retained afterwards.
func TestEndWhileAPostOpensItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, comes := range []bool{true, false} {
			s, conv := open(t, registry(RegistryOptions{}), false)
			st, _ := ask(t, s, conv, "7")
			st.Name()
			s.End(ErrShutdown)
			if comes {
				c := connect(t, st, 0, false)
				if err := <-c.ended; err != nil || !strings.Contains(c.text(), `"id":7,"error":{"code":-32000`) {
					t.Errorf("%v, got:\n%s", err, c.text())
				}
			}
			st.Posted()
			if n := st.log.Size(); n != 0 {
				t.Errorf("the POST came %v: %d bytes are retained", comes, n)
			}
			if _, err := st.Read(newOutput(), 0, false); !errors.Is(err, ErrShutdown) {
				t.Errorf("a reader after the end: %v", err)
			}
		}
	})
}

// TestReaderOfAnEndedSession gets what is left, then the end.
func TestReaderOfAnEndedSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, conv := open(t, registry(RegistryOptions{}), false)
		st, call := ask(t, s, conv, "7")
		st.Name()
		c := connect(t, st, 0, false)
		synctest.Wait()
		s.Message(call, note(1))
		s.End(ErrIdle)
		if err := <-c.ended; err != nil {
			t.Errorf("ended with %v", err)
		}
		if !slices.Equal(c.seqs(), upTo(1, 2)) || !strings.Contains(c.text(), `"id":7,"error":{"code":-32000`) {
			t.Errorf("got:\n%s", c.text())
		}
		st.Posted()
		if _, err := st.Read(newOutput(), 0, false); !errors.Is(err, ErrIdle) {
			t.Errorf("a reader after the end: %v", err)
		}
		if n := s.general.log.Size() + st.log.Size(); n != 0 {
			t.Errorf("%d bytes are retained of an ended session", n)
		}
	})
}
