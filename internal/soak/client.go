package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/chaos"
	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/internal/testkit"
)

// call is one call and what became of it.
type call struct {
	nonce  string
	at     time.Duration // after the beginning
	length time.Duration
	steps  int           // of progress; 0: silent
	pad    int           // bytes of the answer
	cut    time.Duration // when the network is cut after it was sent; 0: as it happens

	began, ended time.Time
	answers      []testkit.Message // one, if all is well
	progress     int
}

// client speaks to a connect as its local client would.
type client struct {
	proc    *process
	version era.Version
	read    chan struct{} // closed at the end of stdout

	write sync.Mutex // held while a line is written

	mu    sync.Mutex // guards the fields below
	calls map[string]*call
	heard map[string]chan struct{} // closed with the first answer
	wrong []string
}

// start starts a connect.
func start(command []string, log string, v era.Version) (*client, error) {
	p, err := launch(command, log)
	if err != nil {
		return nil, err
	}
	c := &client{proc: p, version: v, read: make(chan struct{}), calls: map[string]*call{}, heard: map[string]chan struct{}{}}
	go c.listen() // ends with stdout
	return c, nil
}

func (c *client) kill() {
	c.proc.kill()
	<-c.read
}

func (c *client) send(line []byte) error {
	c.write.Lock()
	defer c.write.Unlock()
	if _, err := c.proc.in.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("soak: %w", err)
	}
	return nil
}

func (c *client) fail(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

// listen takes what connect says.
func (c *client) listen() {
	defer close(c.read)
	defer c.proc.pipe.Close()
	for {
		line, err := c.proc.out.ReadBytes('\n')
		if err != nil {
			if len(line) > 0 || !errors.Is(err, io.EOF) {
				c.fail("stdout ended with %.200q: %v", line, err)
			}
			return
		}
		m, err := testkit.Parse(line)
		switch {
		case err != nil:
			c.fail("no message on stdout: %v", err)
		case m.Method == "ping" && m.ID != nil:
			if err := c.send(testkit.Reply(string(m.ID), `{}`)); err != nil {
				c.fail("pong: %v", err)
			}
		case m.Method == "notifications/progress":
			c.progress(m)
		case m.Method != "":
			c.fail("a stranger: %.200s", line)
		default:
			c.answered(m)
		}
	}
}

func (c *client) progress(m testkit.Message) {
	var p struct {
		ProgressToken string `json:"progressToken"`
		Message       string `json:"message"`
	}
	err := json.Unmarshal(m.Params, &p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.calls[p.ProgressToken]; err == nil && k != nil && p.Message == k.nonce {
		k.progress++
		return
	}
	c.wrong = append(c.wrong, fmt.Sprintf("a stranger's progress: %.200s", m.Bytes))
}

func (c *client) answered(m testkit.Message) {
	var id string
	err := json.Unmarshal(m.ID, &id)
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.calls[id]
	if err != nil || k == nil {
		c.wrong = append(c.wrong, fmt.Sprintf("an answer to nothing: %.200s", m.Bytes))
		return
	}
	if k.answers = append(k.answers, m); len(k.answers) == 1 {
		k.ended = time.Now()
		close(c.heard[id])
	}
}

// ask sends a request and waits for its answer.
func (c *client) ask(ctx context.Context, k *call, line []byte) error {
	heard := make(chan struct{})
	c.mu.Lock()
	c.calls[k.nonce], c.heard[k.nonce] = k, heard
	k.began = time.Now()
	c.mu.Unlock()
	if err := c.send(line); err != nil {
		return err
	}
	select {
	case <-heard:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("soak: %w", context.Cause(ctx))
	case <-c.read:
		return errors.New("soak: connect has closed its stdout")
	}
}

// handshakeLimit is how long the first answer may take.
const handshakeLimit = 20 * time.Second

// handshake is what the client's era begins with. Nothing fails meanwhile.
func (c *client) handshake(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, handshakeLimit)
	defer cancel()
	k := &call{nonce: "hello"}
	line := testkit.Request(`"hello"`, "server/discover", `{"_meta":`+c.meta("")+`}`)
	if !c.version.Modern() {
		line = testkit.Request(`"hello"`, "initialize", testkit.InitializeParams(string(c.version), `{}`, "soak"))
	}
	if err := c.ask(ctx, k, line); err != nil {
		return err
	}
	if k.answers[0].Error != nil {
		return fmt.Errorf("soak: handshake: %s", k.answers[0].Bytes)
	}
	if c.version.Modern() {
		return nil
	}
	return c.send(testkit.Notification("notifications/initialized", ""))
}

// meta is the _meta of a request. token is a progress token, "" for none.
func (c *client) meta(token string) string {
	meta := map[string]any{}
	if token != "" {
		meta["progressToken"] = token
	}
	if c.version.Modern() {
		meta[era.MetaVersion] = c.version
		meta[era.MetaClient] = map[string]string{"name": "soak", "version": "1.0.0"}
		meta[era.MetaCapabilities] = struct{}{}
	}
	text, err := json.Marshal(meta)
	if err != nil {
		panic(err) // it is made of strings
	}
	return string(text)
}

// do makes a call and waits for its answer, or its limit.
func (c *client) do(ctx context.Context, k *call, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	params := fmt.Sprintf(`{"name":%q,"arguments":{"nonce":%q,"micros":%d,"steps":%d,"pad":%d},"_meta":%s}`,
		chaos.ToolWork, k.nonce, k.length.Microseconds(), k.steps, k.pad, c.meta(k.nonce))
	_ = c.ask(ctx, k, testkit.Request(fmt.Sprintf("%q", k.nonce), "tools/call", params)) // without an answer, it shows in the call
}

// leave ends stdin and waits for connect to end, and returns what is wrong with
// that and with all that was heard.
func (c *client) leave(limit time.Duration) []string {
	_ = c.proc.in.Close()
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-c.proc.ended:
	case <-late.C:
		c.fail("connect has not ended %s after its stdin", limit)
		c.kill()
	}
	<-c.read
	if c.proc.err != nil {
		c.fail("connect ended with %v", c.proc.err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wrong
}
