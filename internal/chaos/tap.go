package chaos

import (
	"errors"
	"net"
	"strings"
	"sync"
	"time"
)

// tap stands where the gateway reads and writes, and knows when a call arrived
// and when an answer could be written to its end. A client that comes back
// without a key after that is executed once more: nobody can know that the
// answer was lost on the way.
type tap struct {
	net.Listener

	mu    sync.Mutex // guards the field below
	calls map[string]*passage
}

// event is what can happen to a call here.
type event uint8

const (
	arrived event = iota
	written       // to its end
	ended         // the connection that it came on
)

// passage is when a call passed.
type passage struct{ arrived, written, ended []time.Time }

// Accept implements net.Listener.
func (t *tap) Accept() (net.Conn, error) {
	conn, err := t.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &tapped{Conn: conn, tap: t}, nil
}

func (t *tap) note(nonce string, what event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.calls[nonce]
	if p == nil {
		p = &passage{}
		t.calls[nonce] = p
	}
	switch now := time.Now(); what {
	case arrived:
		p.arrived = append(p.arrived, now)
	case written:
		p.written = append(p.written, now)
	case ended:
		p.ended = append(p.ended, now)
	}
}

// of returns when a call passed.
func (t *tap) of(nonce string) passage {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.calls[nonce]; p != nil {
		return *p
	}
	return passage{}
}

// near is how long after a call has arrived the gateway may still look whether
// there is another one like it.
const near = 150 * time.Millisecond

// slack is how long the gateway has to act on the end of a connection, once it
// was read.
const slack = 20 * time.Millisecond

// windows returns how many times a call arrived again when an answer to it had
// been written that its client did not get.
func (p passage) windows(got int) (n int) {
	lost := p.written[:max(0, len(p.written)-got)]
	for i, at := range p.arrived {
		if i > 0 && len(lost) > 0 && lost[0].Before(at.Add(near)) {
			lost = lost[1:]
			n++
		}
	}
	return n
}

// early returns how many times a call arrived again before the gateway could have
// acted on it that the connection it came on before had ended: on a machine that is too slow.
func (p passage) early() (n int) {
	for i, at := range p.arrived {
		known := 0
		for _, end := range p.ended {
			if end.Before(at.Add(-slack)) {
				known++
			}
		}
		if known < i {
			n++
		}
	}
	return n
}

type tapped struct {
	net.Conn
	tap *tap

	mu   sync.Mutex // guards the field below
	scan scanner    // of what is written

	// Of the goroutine that reads.
	matched int
	nonce   strings.Builder
	carried []string // not known to have ended
}

// nonceMark is what a call has and nothing else.
const nonceMark = `"nonce":"`

// Read implements net.Conn.
func (c *tapped) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	for _, one := range b[:n] {
		switch {
		case c.matched < len(nonceMark):
			c.matched = match(nonceMark, c.matched, one)
		case one != '"':
			c.nonce.WriteByte(one)
		default:
			c.tap.note(c.nonce.String(), arrived)
			c.carried = append(c.carried, c.nonce.String())
			c.matched = 0
			c.nonce.Reset()
		}
	}
	if netErr, ok := errors.AsType[net.Error](err); err != nil && !(ok && netErr.Timeout()) {
		for _, nonce := range c.carried {
			c.tap.note(nonce, ended)
		}
		c.carried = nil
	}
	return n, err
}

// Write implements net.Conn.
func (c *tapped) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err != nil {
		return n, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for rest := b; len(rest) > 0; {
		f, seen := c.scan.feed(rest)
		rest = rest[seen:]
		if f.ends > 0 {
			c.tap.note(f.nonce, written)
		}
	}
	return n, nil
}
