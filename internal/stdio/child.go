package stdio

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Link is one peer behind a framed connection: a child process, or whatever
// stands at the other end of a reader and a writer.
type Link struct {
	*Conn
	proc  *Process  // nil for Connect
	close io.Closer // for Connect
	stop  chan struct{}
	once  sync.Once
	done  chan struct{}
}

// settle is how long the other half of an end is waited for: output that still
// stands in the pipe of a dead process, or the status of one that closed its
// output.
const settle = 500 * time.Millisecond

// Launch starts a process and reads its messages. Two goroutines frame, one
// supervises; all end when the process tree has. The error wraps ErrStart.
func Launch(cmd Command, popts ProcessOptions, opts ConnOptions, h Handler) (*Link, error) {
	p, err := StartProcess(cmd, popts)
	if err != nil {
		return nil, err
	}
	growPipe(p.Stdin())
	l := &Link{
		Conn: newConn(p.Stdout(), p.Stdin(), opts, h), proc: p,
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	go l.supervise(h)
	return l, nil
}

// Connect does the same for an in-process server that reads from w's other end
// and writes to r's. closer ends it: after Close nothing may block on r or w.
func Connect(r io.Reader, w io.Writer, closer io.Closer, opts ConnOptions, h Handler) *Link {
	l := &Link{
		Conn: newConn(r, w, opts, h), close: closer,
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	go l.follow(h)
	return l
}

// Stop ends the peer: it stops sending, closes the peer's input and, for a
// process, climbs the ladder of Process.Stop. It returns when all is over.
// Idempotent, safe for concurrent use.
func (l *Link) Stop() {
	l.once.Do(func() { close(l.stop) })
	<-l.done
}

// Done is closed when nothing of the peer is left.
func (l *Link) Done() <-chan struct{} { return l.done }

// PID returns the process id, 0 for an in-process peer.
func (l *Link) PID() int {
	if l.proc == nil {
		return 0
	}
	return l.proc.PID()
}

// StderrTail returns the last lines that a process wrote to stderr.
func (l *Link) StderrTail() string {
	if l.proc == nil {
		return ""
	}
	return l.proc.StderrTail()
}

// supervise tells h of the end as soon as it is certain, then makes sure that
// nothing of the process is left.
func (l *Link) supervise(h Handler) {
	defer close(l.done)
	p := l.proc
	var reason error
	reading, asked := true, false
	select {
	case <-l.stop:
		reason, asked = ErrClosed, true
		l.Finish(settle)
	case <-p.Exited():
		reading = !l.drained(settle)
		reason = p.ExitError()
	case err := <-l.readEnd:
		reading, reason = false, err
		if l.exited(settle) {
			reason = p.ExitError()
		}
	case err := <-l.written:
		l.written <- err
		reason = err
		end := time.Now().Add(settle)
		if l.exited(settle) {
			reading = !l.drained(time.Until(end))
			reason = p.ExitError()
		}
	}
	l.shut(fmt.Errorf("%w: %w", ErrClosed, reason), false)
	stopped := make(chan struct{})
	go func() { defer close(stopped); p.Stop() }()
	if reading {
		// A peer that was asked to end may have something to say till then. Of
		// one that failed nothing is waited for, since h has callers to tell: it
		// may live on without its input, or a grandchild hold the pipe.
		if asked {
			<-stopped
		}
		_ = p.Stdout().Close()
		<-l.readEnd
	}
	h.Closed(reason)
	<-stopped
	_ = p.Stdin().Close()
	_ = p.Stdout().Close()
	<-l.written
}

func (l *Link) drained(d time.Duration) bool {
	select {
	case <-l.readEnd:
		return true
	case <-time.After(d):
		return false
	}
}

func (l *Link) exited(d time.Duration) bool {
	select {
	case <-l.proc.Exited():
		return true
	case <-time.After(d):
		return false
	}
}

// follow is supervise for an in-process peer.
func (l *Link) follow(h Handler) {
	defer close(l.done)
	var reason error
	reading := true
	select {
	case <-l.stop:
		reason = ErrClosed
		l.Finish(settle)
	case err := <-l.readEnd:
		reading, reason = false, err
	case err := <-l.written:
		l.written <- err
		reason = err
	}
	l.shut(fmt.Errorf("%w: %w", ErrClosed, reason), false)
	_ = l.close.Close()
	if reading {
		<-l.readEnd
	}
	h.Closed(reason)
	<-l.written
}
