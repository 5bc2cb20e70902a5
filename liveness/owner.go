package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/liveness"
	"github.com/holdfast-mcp/holdfast/internal/stdio"
)

// row is what came of a scenario.
type row struct {
	scenario
	reached  liveness.Verdict // wanted, if it was reached, else the last
	after    time.Duration    // since the call, or since what was done to the server
	evidence []string
	path     []liveness.Verdict // all, in their order
	end      end
	note     string // the server's own, in its answer
	err      error
}

// owner does with one server what the gateway does: it follows the server with
// a Monitor, and ends its call by the idle clock.
type owner struct {
	scenario
	link  *stdio.Link
	mon   *liveness.Monitor
	lines chan []byte
	ended chan error
	row   row

	pings  int
	begun  time.Time // of the call
	struck time.Time // when what is to be found out began
	clock  time.Time // up to which idle time has been counted
	idled  time.Duration
}

// message is any that a server of ours sends.
type message struct {
	ID     string          `json:"id"`
	Method string          `json:"method"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// Line implements stdio.Handler.
func (o *owner) Line(line []byte) { o.lines <- append([]byte(nil), line...) }

// Oversize implements stdio.Handler.
func (o *owner) Oversize([]byte, int) {}

// Closed implements stdio.Handler.
func (o *owner) Closed(err error) { o.ended <- err }

// run starts the server, makes the call and follows both to their end.
func run(ctx context.Context, env surroundings, s scenario) row {
	o := &owner{scenario: s, lines: make(chan []byte, 4096), ended: make(chan error, 1), row: row{scenario: s}}
	link, err := stdio.Launch(s.command(env), stdio.ProcessOptions{StopTimeout: 2 * time.Second}, stdio.ConnOptions{}, o)
	if err != nil {
		o.row.err = err
		return o.row
	}
	defer link.Stop()
	o.link = link
	o.mon = liveness.New(liveness.Settings{Interval: interval, Timeout: timeout}, time.Now())
	if o.row.err = o.greet(ctx); o.row.err == nil {
		o.row.err = o.follow(ctx, s.arguments(env))
	}
	return o.row
}

func (o *owner) send(format string, args ...any) (size int, err error) {
	line := []byte(`{"jsonrpc":"2.0",` + fmt.Sprintf(format, args...) + `}`)
	return len(line) + 1, o.link.SendRaw(line)
}

func (o *owner) ping() error {
	o.pings++
	id := fmt.Sprintf("ping-%d", o.pings)
	size, err := o.send(`"id":%q,"method":"ping"`, id)
	o.mon.PingSent(time.Now(), id, size)
	return err
}

// greet initializes the server and pings it once, so that a server that answers
// pings is known to.
func (o *owner) greet(ctx context.Context) error {
	const hello = `"id":"hello","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"liveness","version":"1"}}`
	if _, err := o.send(hello); err != nil {
		return fmt.Errorf("ended early: %w", err)
	}
	patience := time.After(20 * time.Second) // a machine with much to do
	for {
		select {
		case line := <-o.lines:
			m := o.take(line)
			switch {
			case strings.HasPrefix(m.ID, "ping-"):
				return nil
			case m.ID == "hello":
				if _, err := o.send(`"method":"notifications/initialized"`); err != nil {
					return err
				}
				if err := o.ping(); err != nil {
					return err
				}
				patience = time.After(timeout)
			}
		case <-patience:
			if o.pings == 0 {
				return errors.New("no answer to initialize")
			}
			return nil
		case err := <-o.ended:
			return fmt.Errorf("ended early: %w: %s", err, o.link.StderrTail())
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// take tells the Monitor of a message.
func (o *owner) take(line []byte) (m message) {
	now := time.Now()
	if err := json.Unmarshal(line, &m); err != nil {
		o.row.err = fmt.Errorf("the server says %q: %w", line, err)
	}
	switch {
	case strings.HasPrefix(m.ID, "ping-") && m.Error == nil:
		o.mon.PingAnswered(now, m.ID)
	case strings.HasPrefix(m.ID, "ping-"):
		o.mon.PingRefused(now)
	case m.Method == "notifications/progress":
		o.mon.Progress(now)
		o.idled = 0
	default:
		o.mon.Heard(now)
	}
	return m
}

// follow makes the call and returns at its end.
func (o *owner) follow(ctx context.Context, arguments string) error {
	o.begun = time.Now()
	o.struck, o.clock = o.begun, o.begun
	o.mon.Began(o.begun)
	if _, err := o.send(`"id":"call","method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{"progressToken":1}}`, o.tool, arguments); err != nil {
		return err
	}
	todo := o.signals()
	for o.row.end == "" {
		wake, err := o.act()
		if err != nil {
			return err
		}
		if len(todo) > 0 {
			if at := o.begun.Add(todo[0].at); !at.After(time.Now()) {
				o.strike(todo[0].signal)
				todo = todo[1:]
				continue
			} else if wake.IsZero() || at.Before(wake) {
				wake = at
			}
		}
		if err := o.wait(ctx, wake); err != nil {
			return err
		}
	}
	return nil
}

func (o *owner) strike(s syscall.Signal) {
	if s == syscall.SIGSTOP {
		o.struck = time.Now()
	}
	if err := syscall.Kill(-o.link.PID(), s); err != nil {
		o.row.err = err
	}
}

// act does what the Monitor asks for, and notes its verdict. It returns when to
// act again.
func (o *owner) act() (wake time.Time, err error) {
	for {
		var do liveness.Action
		do, wake = o.mon.Next(time.Now())
		if do&liveness.Ping != 0 {
			if err := o.ping(); err != nil {
				return wake, err
			}
		}
		if do&liveness.Sample != 0 {
			o.mon.Sampled(o.link.Vitals())
		}
		if do == 0 {
			break
		}
	}
	now := time.Now()
	report := o.note(now)
	if !report.Works {
		o.idled += now.Sub(o.clock)
		if over := now.Add(requestIdle - o.idled); wake.IsZero() || over.Before(wake) {
			wake = over
		}
	}
	o.clock = now
	if o.idled >= requestIdle {
		o.finish(idle)
		_, err = o.send(`"method":"notifications/cancelled","params":{"requestId":"call"}`)
	}
	return wake, err
}

// note adds the verdict to the path when it has changed.
func (o *owner) note(now time.Time) liveness.Report {
	report := o.mon.Report(now)
	r := &o.row
	if o.want == liveness.Working && len(r.evidence) > 0 && !strings.HasPrefix(r.evidence[0], "progress") && strings.HasPrefix(report.Evidence[0], "progress") {
		r.after, r.evidence = now.Sub(o.struck), report.Evidence // more than that a call began
	}
	if n := len(r.path); n == 0 || r.path[n-1] != report.Verdict {
		r.path = append(r.path, report.Verdict)
		if r.evidence == nil || r.reached != o.want {
			r.reached, r.after, r.evidence = report.Verdict, now.Sub(o.struck), report.Evidence
		}
	}
	return report
}

func (o *owner) wait(ctx context.Context, wake time.Time) error {
	if o.row.end != "" {
		return nil
	}
	var timer <-chan time.Time
	if !wake.IsZero() {
		timer = time.After(time.Until(wake))
	}
	select {
	case line := <-o.lines:
		if m := o.take(line); m.ID == "call" {
			return o.answered(m)
		}
	case err := <-o.ended:
		o.mon.Exited(time.Now(), strings.TrimPrefix(err.Error(), stdio.ErrClosed.Error()+": "))
		o.note(time.Now())
		o.finish(lost)
	case <-timer:
	case <-ctx.Done():
		return ctx.Err()
	}
	return o.row.err
}

// answered reads the answer to the call, in which the server says how often it
// has executed it.
func (o *owner) answered(m message) error {
	var result struct {
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
	}
	var text struct {
		Executions int    `json:"executions"`
		Note       string `json:"note"`
	}
	if err := json.Unmarshal(m.Result, &result); err != nil || len(result.Content) != 1 {
		return fmt.Errorf("the call's answer is %s %s", m.Result, m.Error)
	}
	if err := json.Unmarshal([]byte(result.Content[0].Text), &text); err != nil {
		return err
	}
	if text.Executions != 1 {
		return fmt.Errorf("the call was executed %d times", text.Executions)
	}
	o.row.note = text.Note
	o.finish(answered)
	return nil
}

func (o *owner) finish(e end) {
	o.row.end = e
	o.mon.Ended(time.Now())
	o.note(time.Now())
}
