package conversation

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/stdio"
)

// ErrFull: as many servers run as may. Match with errors.Is.
var ErrFull = errors.New("conversation: too many servers running")

// PoolOptions of a pool of conversations with one configured server.
type PoolOptions struct {
	Options
	Max  int // servers at once, spare ones included
	Warm int // spare servers kept started
}

// Pool hands out conversations: one for each session, or the same to all if it
// is shared. Safe for concurrent use.
type Pool struct {
	opts PoolOptions

	mu            sync.Mutex // guards the fields below
	spare         []*Conversation
	live          map[*Conversation]time.Time // when it was started
	ending        map[*Conversation]bool      // over, but its process may not be gone yet
	shared        *Conversation
	used          bool  // a conversation was taken once
	frail         int   // spare servers in a row that ended unused
	lastErr       error // why the latest server could not be started
	closed        bool
	filling       bool
	probing       bool          // the first server is being watched: no other one is started beside it
	modern        *Conversation // carries all stateless requests, if the server takes them
	legacyOnly    bool          // it does not
	statelessOnly atomic.Bool   // it takes no handshake
	handshake     atomic.Bool   // it was seen to take one
	finding       chan struct{} // closed when the probe that is under way is over
	opening       chan struct{} // closed when the shared conversation that is being started is, or is not
	changed       chan struct{} // closed and replaced when a server may be had that could not before
	fatal         chan error
	wg            sync.WaitGroup // refilling
}

// NewPool returns a pool without servers.
func NewPool(opts PoolOptions) *Pool {
	return &Pool{opts: opts, live: map[*Conversation]time.Time{}, ending: map[*Conversation]bool{},
		changed: make(chan struct{}), fatal: make(chan error, 1)}
}

// Changed returns a channel that is closed the next time that a server may be
// had which could not before: one has ended, or a spare one is there.
func (p *Pool) Changed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

func (p *Pool) changeLocked() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// settle is how long the first server is watched for an early end. A command
// that is wrong mostly fails at once.
const settle = 300 * time.Millisecond

// Start starts the first server, and returns an error if it cannot be started
// or ends at once. A shared one must have answered initialize, too.
func (p *Pool) Start(ctx context.Context) error {
	if !p.opts.Shared && p.opts.Warm == 0 {
		return nil
	}
	p.mu.Lock()
	p.probing = true
	p.mu.Unlock()
	c, err := p.add()
	if err != nil {
		return err
	}
	if p.opts.Shared {
		if err := c.awaitReady(ctx, p.opts.StartTimeout); err != nil {
			c.Close(err)
			c.Wait()
			return err
		}
		return nil
	}
	t := time.NewTimer(settle)
	defer t.Stop()
	select {
	case <-c.Ready(): // over
		c.Wait()
		return c.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
	}
	p.refill()
	return nil
}

// Fatal tells that the very first server ended with a failure before anybody
// could use it: the command is wrong, and it took a moment to show.
func (p *Pool) Fatal() <-chan error { return p.fatal }

// add starts a server, and keeps it as the shared or as a spare one.
func (p *Pool) add() (*Conversation, error) {
	c, err := p.start(p.opts.Shared)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live[c] == (time.Time{}) { // it ended just now
		p.lastErr = c.Err()
		return nil, p.lastErr
	}
	if p.opts.Shared {
		p.shared = c
	} else {
		p.spare = append(p.spare, c)
	}
	p.changeLocked()
	return c, nil
}

// start starts a server and counts it.
func (p *Pool) start(shared bool) (*Conversation, error) {
	p.mu.Lock()
	switch {
	case p.closed:
		p.mu.Unlock()
		return nil, ErrClosed
	case len(p.live) >= p.opts.Max:
		p.mu.Unlock()
		return nil, fmt.Errorf("%w: %d (--max-children)", ErrFull, p.opts.Max)
	}
	place := &Conversation{} // holds the place while the lock is not held
	p.live[place] = time.Time{}
	p.mu.Unlock()

	opts := p.opts.Options
	opts.OnOver = p.over
	opts.Shared = shared
	opts.StatelessOnly, opts.OnStatelessOnly = p.statelessOnly.Load, func() { p.statelessOnly.Store(true) }
	opts.TakesHandshake, opts.OnHandshake = p.handshake.Load, p.handshake.Store
	c, err := Start(opts)

	p.mu.Lock()
	delete(p.live, place)
	if err == nil && p.closed {
		p.mu.Unlock()
		c.Close(ErrClosed)
		c.Wait()
		return nil, ErrClosed
	}
	defer p.mu.Unlock()
	if p.lastErr = err; err != nil {
		p.changeLocked() // its place is free
		return nil, err
	}
	c.mu.Lock()
	ended := c.state == over
	err = c.lastErr
	c.mu.Unlock()
	if ended { // before it was counted
		p.lastErr = err
		p.changeLocked()
		return nil, err
	}
	p.live[c] = time.Now()
	return c, nil
}

// over is told of each conversation's end.
func (p *Pool) over(c *Conversation, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	since, counted := p.live[c]
	delete(p.live, c)
	p.ending[c] = true
	defer p.changeLocked()
	go func() { // ends with the process; Close waits for the same
		c.Wait()
		p.mu.Lock()
		delete(p.ending, c)
		p.mu.Unlock()
	}()
	if p.shared == c {
		p.shared = nil
	}
	if p.modern == c {
		p.modern = nil
	}
	if p.opts.Remote { // the next one may find another server
		p.legacyOnly = false
		p.statelessOnly.Store(false)
	}
	for i, s := range p.spare {
		if s != c {
			continue
		}
		p.spare = append(p.spare[:i], p.spare[i+1:]...)
		p.frail++
		p.lastErr = err
		exit, ok := errors.AsType[*stdio.ExitError](err)
		if ok && exit.Code != 0 && !p.used && counted && time.Since(since) < p.opts.StartTimeout && !p.closed {
			select {
			case p.fatal <- fmt.Errorf("server %q: %w", p.opts.Name, err):
			default:
			}
		}
		break
	}
	if !p.closed {
		p.refillLocked()
	}
}

// Take returns a conversation for a session: a spare one if there is, else a
// new one. The error is or wraps ErrFull, or tells why no server starts.
func (p *Pool) Take() (*Conversation, error) {
	for {
		p.mu.Lock()
		p.used = true
		var c *Conversation
		switch n := len(p.spare); {
		case p.shared != nil:
			c = p.shared
		case n > 0:
			c = p.spare[0]
			p.spare = p.spare[1:]
		}
		if c != nil {
			p.frail = 0
			p.refillLocked()
			p.mu.Unlock()
			return c, nil
		}
		if wait := p.opening; wait != nil { // one start serves all
			p.mu.Unlock()
			<-wait
			continue
		}
		if p.opts.Shared {
			p.opening = make(chan struct{})
		}
		p.mu.Unlock()
		_, err := p.add()
		p.mu.Lock()
		if p.opening != nil {
			close(p.opening)
			p.opening = nil
		}
		// The last place may be that of a spare one which is being started.
		full := errors.Is(err, ErrFull)
		there, coming, change := full && len(p.spare) > 0, full && p.filling, p.changed
		p.mu.Unlock()
		switch {
		case there:
		case coming:
			<-change
		case err != nil:
			return nil, err
		}
	}
}

func (p *Pool) refill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.probing = false
	p.refillLocked()
}

// maxFrail is after how many spare servers that ended unused no more are kept:
// some servers do not like to wait. They are started when needed, then.
const maxFrail = 3

// refillLocked starts spare servers in the background.
func (p *Pool) refillLocked() {
	if p.filling || !p.lacksLocked() {
		return
	}
	p.filling = true
	p.wg.Go(func() { // ends when enough spare servers are started, or one fails to
		for {
			_, err := p.add()
			p.mu.Lock()
			if err != nil || !p.lacksLocked() {
				p.filling = false
				p.changeLocked() // who waits for it finds out
				p.mu.Unlock()
				return
			}
			p.mu.Unlock()
		}
	})
}

// lacksLocked reports whether another spare server is wanted and may be had.
func (p *Pool) lacksLocked() bool {
	return !p.opts.Shared && !p.closed && !p.probing && len(p.spare) < p.opts.Warm && len(p.live) < p.opts.Max && p.frail < maxFrail
}

// Check returns nil if a session could get a conversation now.
func (p *Pool) Check() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return ErrClosed
	case p.shared != nil:
		return p.shared.Err()
	case len(p.spare) > 0:
		return nil
	case len(p.live) >= p.opts.Max:
		return fmt.Errorf("%w: %d (--max-children)", ErrFull, p.opts.Max)
	}
	return p.lastErr
}

// Live returns how many servers run.
func (p *Pool) Live() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.live)
}

// Close ends all conversations and returns once no server is left.
func (p *Pool) Close(reason error) {
	p.mu.Lock()
	p.closed = true
	all := make([]*Conversation, 0, len(p.live)+len(p.ending))
	for c := range p.ending {
		all = append(all, c)
	}
	for c, since := range p.live {
		if !since.IsZero() {
			all = append(all, c)
		}
	}
	p.mu.Unlock()
	var wg sync.WaitGroup
	for _, c := range all {
		wg.Go(func() { c.Close(reason); c.Wait() })
	}
	wg.Wait()
	p.wg.Wait()
}
