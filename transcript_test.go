package holdfast_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/internal/testkit"
)

// TestTranscripts plays what stands in testdata/transcripts against a gateway
// in virtual time. Each file says at its top how it is read. A step that
// expects something waits until nothing moves any more, and then all that has
// come must be what it says: too much is as wrong as too little.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/transcripts/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			archive := txtar.Parse(data)
			synctest.Test(t, func(t *testing.T) { play(t, archive.Files) })
		})
	}
}

// play is one transcript.
func play(t *testing.T, steps []txtar.File) {
	p := &player{t: t, vars: map[string]string{}, exchanges: map[string]*exchange{}, l: testkit.NewMemListener()}
	in := holdfast.InProcess(p.act)
	in.Warm = -1
	if len(steps) > 0 && steps[0].Name == "shared" {
		in.Isolation, steps = holdfast.Shared, steps[1:]
	}
	g, err := holdfast.New(holdfast.Options{Server: in, Timers: holdfast.Timers{PingInterval: -1, OrphanGrace: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	p.g = g
	started := make(chan error, 1)
	go func() { started <- g.Start(t.Context()) }() // a shared server has steps to play before it ends
	srv := &http.Server{Handler: g}
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(p.l) }() // ends with srv.Close
	defer func() {
		if err := <-started; err != nil {
			t.Errorf("Start: %v", err)
		}
		if p.stdin != nil {
			_ = p.stdin.Close()
		}
		_ = g.Stop(context.Background())
		for _, x := range p.exchanges {
			_ = x.conn.Close()
		}
		_ = srv.Close()
		<-served
		p.running.Wait()
	}()
	for i, step := range steps {
		p.at = fmt.Sprintf("step %d, %q", i+1, step.Name)
		p.step(step.Name, string(step.Data))
	}
	p.at = "at the end"
	p.nothingLeft()
}

// player is the client and the servers of one transcript.
type player struct {
	t         *testing.T
	g         *holdfast.Gateway
	l         *testkit.MemListener
	at        string               // the step, for errors
	headers   string               // of every request
	vars      map[string]string    // values of $names
	exchanges map[string]*exchange // by label
	stdin     *io.PipeWriter       // of the stdio transport
	stdout    *inbox
	running   sync.WaitGroup

	mu     sync.Mutex // guards the field below
	actors []*actor
}

// step plays one section. Its name is a verb and what belongs to it.
func (p *player) step(name, text string) {
	p.t.Helper()
	words := strings.Fields(name)
	label := func(n int) string { return strings.Join(words[min(n, len(words)):], " ") }
	switch words[0] {
	case ">":
		if words[1] == "cut" {
			_ = p.exchange(label(2)).conn.Close()
			return
		}
		p.send(words[1], words[2], label(3), text)
	case "<":
		p.head(words[1], label(2), text)
	case "<<":
		p.same("stream", p.exchange(label(1)).body.take(), text)
	case "<.":
		x := p.exchange(label(1))
		p.same("end of the stream", x.body.take(), text)
		if !x.body.ended() {
			p.t.Errorf("%s: the response goes on", p.at)
		}
	case "server":
		p.server(words[1:], text)
	case "stdin":
		if label(1) == "ends" {
			_ = p.stdin.Close()
			return
		}
		p.write(text)
	case "stdout":
		p.same("stdout", p.stdout.take(), lines(text))
	case "headers":
		p.headers = text
	case "wait":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			p.t.Fatal(err)
		}
		time.Sleep(d)
	case "stop":
		p.running.Go(func() { _ = p.g.Stop(context.Background()) }) // ends when all is over
	default:
		p.t.Fatalf("%s: no such step", p.at)
	}
}

// server is what one of the servers hears, says or does. A number says which.
func (p *player) server(words []string, text string) {
	p.t.Helper()
	n := 1
	if number, err := strconv.Atoi(words[0]); err == nil {
		n, words = number, words[1:]
	}
	synctest.Wait()
	p.mu.Lock()
	started := len(p.actors)
	p.mu.Unlock()
	if started < n {
		p.t.Fatalf("%s: %d servers were started", p.at, started)
	}
	k := p.actors[n-1]
	switch words[0] {
	case "gets":
		p.same("server's stdin", k.in.take(), lines(text))
	case "says":
		if _, err := io.WriteString(k.out, p.fill(lines(text))); err != nil {
			p.t.Fatalf("%s: %v", p.at, err)
		}
	case "exits":
		k.exit()
	case "ends":
		if !k.in.ended() {
			p.t.Errorf("%s: it still runs", p.at)
		}
	default:
		p.t.Fatalf("%s: a server gets, says, exits or ends", p.at)
	}
}

// actor is one server in this process.
type actor struct {
	in   *inbox
	out  io.Writer
	exit func()
}

// act is a server that does what the transcript says.
func (p *player) act(ctx context.Context, r io.ReadCloser, w io.WriteCloser) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	k := &actor{in: &inbox{}, out: w, exit: cancel}
	p.mu.Lock()
	p.actors = append(p.actors, k)
	p.mu.Unlock()
	read := make(chan struct{})
	go func() { defer close(read); k.in.fill(r) }() // ends with r
	select {
	case <-read:
	case <-ctx.Done():
		_ = r.Close()
		<-read
	}
	return nil
}

// inbox collects what comes.
type inbox struct {
	mu   sync.Mutex // guards the fields below
	buf  bytes.Buffer
	done bool
}

func (b *inbox) fill(r io.Reader) {
	part := make([]byte, 64<<10)
	for {
		n, err := r.Read(part)
		b.mu.Lock()
		b.buf.Write(part[:n])
		b.done = err != nil
		b.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// take returns what came since it was last asked, once nothing moves any more.
func (b *inbox) take() string {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.buf.String()
	b.buf.Reset()
	return out
}

func (b *inbox) ended() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.done
}

// exchange is one HTTP exchange on a connection of its own.
type exchange struct {
	conn net.Conn
	body *inbox

	mu   sync.Mutex // guards the field below
	resp *http.Response
}

func (p *player) exchange(label string) *exchange {
	p.t.Helper()
	x := p.exchanges[label]
	if x == nil {
		p.t.Fatalf("%s: nothing was sent under that name", p.at)
	}
	return x
}

// send writes a request as it stands there, with a Host and a length.
func (p *player) send(method, path, label, text string) {
	p.t.Helper()
	header, body := section(p.fill(text))
	body = strings.TrimRight(body, "\n")
	header = p.fill(p.headers) + header
	var req strings.Builder
	fmt.Fprintf(&req, "%s %s HTTP/1.1\r\nHost: localhost\r\n", method, p.fill(path))
	for line := range strings.FieldsFuncSeq(header, func(r rune) bool { return r == '\n' }) {
		req.WriteString(line + "\r\n")
	}
	if method == http.MethodPost {
		fmt.Fprintf(&req, "Content-Length: %d\r\n", len(body))
	}
	req.WriteString("\r\n" + body)
	conn, err := p.l.Dial(p.t.Context(), "", "")
	if err != nil {
		p.t.Fatal(err)
	}
	if before := p.exchanges[label]; before != nil {
		p.same("rest of the exchange before", before.body.take(), "")
		_ = before.conn.Close()
	}
	x := &exchange{conn: conn, body: &inbox{}}
	p.exchanges[label] = x
	if _, err := io.WriteString(conn, req.String()); err != nil {
		p.t.Fatal(err)
	}
	p.running.Go(func() { x.read(method) }) // ends with the connection
}

func (x *exchange) read(method string) {
	resp, err := http.ReadResponse(bufio.NewReader(x.conn), &http.Request{Method: method})
	if err != nil {
		return // the step that waits for it says so
	}
	x.mu.Lock()
	x.resp = resp
	x.mu.Unlock()
	x.body.fill(resp.Body)
}

// head compares a response's status, the headers that are listed, "-" for one
// that must not be there, and what there is of its body.
func (p *player) head(status, label, text string) {
	p.t.Helper()
	synctest.Wait()
	x := p.exchange(label)
	x.mu.Lock()
	resp := x.resp
	x.mu.Unlock()
	if resp == nil {
		p.t.Fatalf("%s: there is no response yet", p.at)
	}
	got := x.body.take()
	if strconv.Itoa(resp.StatusCode) != status {
		p.t.Fatalf("%s: the status is %d\n%s", p.at, resp.StatusCode, got)
	}
	header, body := section(text)
	for line := range strings.FieldsFuncSeq(header, func(r rune) bool { return r == '\n' }) {
		name, value, ok := strings.Cut(line, ": ")
		switch {
		case !ok:
			p.t.Fatalf("%s: %q is no header", p.at, line)
		case value == "-" && resp.Header[http.CanonicalHeaderKey(name)] != nil:
			p.t.Errorf("%s: there is a header %s: %s", p.at, name, resp.Header.Get(name))
		case value != "-":
			p.same(name, resp.Header.Get(name), value)
		}
	}
	if resp.Header.Get("Content-Type") != "text/event-stream" {
		body = strings.TrimRight(body, "\n")
	}
	p.same("body", got, body)
}

// section is the headers and the body of a message.
func section(text string) (header, body string) {
	if body, ok := strings.CutPrefix(text, "\n"); ok {
		return "", body
	}
	header, body, _ = strings.Cut(text, "\n\n")
	return header, body
}

// lines is text without blank lines at its end, which are there to be read
// better.
func lines(text string) string {
	if text = strings.TrimRight(text, "\n"); text == "" {
		return ""
	}
	return text + "\n"
}

var placeholder = regexp.MustCompile(`\$[a-z]+`)

// fill puts the values of $names in.
func (p *player) fill(text string) string {
	return placeholder.ReplaceAllStringFunc(text, func(name string) string {
		if value, ok := p.vars[name]; ok {
			return value
		}
		return name
	})
}

// same compares, and learns the values of $names that are seen for the first
// time: 10 letters and digits at least.
func (p *player) same(what, got, want string) {
	p.t.Helper()
	pattern := regexp.QuoteMeta(p.fill(want))
	var names []string
	pattern = regexp.MustCompile(`\\\$[a-z]+`).ReplaceAllStringFunc(pattern, func(quoted string) string {
		if name := quoted[1:]; !slices.Contains(names, name) {
			names = append(names, name)
			return "(?P<" + name[1:] + ">[A-Z2-7]{10,})"
		}
		return "[A-Z2-7]{10,}"
	})
	m := regexp.MustCompile(`\A` + pattern + `\z`).FindStringSubmatch(got)
	if m == nil {
		p.t.Fatalf("%s: the %s is\n%s\nwant\n%s", p.at, what, p.unfill(got), want)
	}
	for i, name := range names {
		p.vars[name] = m[i+1]
	}
	if p.fill(want) != got {
		p.t.Fatalf("%s: the %s is\n%s\nwant\n%s", p.at, what, p.unfill(got), want)
	}
}

// unfill is for people who read what came.
func (p *player) unfill(text string) string {
	for name, value := range p.vars {
		text = strings.ReplaceAll(text, value, name)
	}
	return text
}

// nothingLeft demands that the transcript has told everything.
func (p *player) nothingLeft() {
	p.t.Helper()
	for label, x := range p.exchanges {
		p.same("rest of "+label, x.body.take(), "")
	}
	for i, k := range p.actors {
		p.same(fmt.Sprintf("rest of server %d's stdin", i+1), k.in.take(), "")
	}
	if p.stdout != nil {
		p.same("rest of stdout", p.stdout.take(), "")
	}
}

// write says something on the stdin of the stdio transport.
func (p *player) write(text string) {
	p.t.Helper()
	if p.stdin == nil {
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		p.stdin, p.stdout = inW, &inbox{}
		p.running.Go(func() { p.stdout.fill(outR) }) // ends with outW
		p.running.Go(func() {                        // ends with inW
			_ = p.g.ServePipe(context.Background(), inR, outW)
			_ = outW.Close()
		})
	}
	if _, err := io.WriteString(p.stdin, p.fill(lines(text))); err != nil {
		p.t.Fatalf("%s: %v", p.at, err)
	}
}
