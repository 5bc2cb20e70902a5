package chaos

import (
	"bytes"
	"net"
	"sync"
	"time"
)

// writeTimeout is for each write to a side that does not read.
const writeTimeout = 10 * time.Second

// wired is a connection through the link.
type wired struct {
	link           *link
	user           *patient
	client, server *net.TCPConn
	gone           chan struct{} // closed at the end
	scan           scanner       // of down
	passed         int           // bytes of the request, of the answer

	mu    sync.Mutex // guards the fields below
	fault Fault
	open  bool // it has begun
	timer *time.Timer
	half  bool      // half-open
	pings int       // lost since
	fired time.Time // when the fault happened; zero: it has not
	ended bool
	whole bool // an answer was passed on to its end
}

// arm says what is to happen from now on.
func (w *wired) arm(f Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = f
	if w.open {
		w.armLocked()
	}
}

func (w *wired) armLocked() {
	if w.fault.When == AfterTime && !w.ended {
		w.timer = time.AfterFunc(w.fault.After, func() { w.fail(AfterTime) })
	}
}

func (w *wired) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open = true
	w.armLocked()
}

// when returns when the fault happened, and whether it has.
func (w *wired) when() (time.Time, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fired, !w.fired.IsZero()
}

// answered reports whether a whole answer was passed on.
func (w *wired) answered() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.whole
}

func (w *wired) now() (f Fault, half bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fault, w.half
}

// fail makes the fault happen, if it is of that moment.
func (w *wired) fail(m Moment) {
	w.mu.Lock()
	if w.ended || !w.fired.IsZero() || w.fault.When != m {
		w.mu.Unlock()
		return
	}
	w.fired = time.Now()
	how := w.fault.How
	if w.half = how == Swallow; w.half {
		w.timer = time.AfterFunc(w.fault.Wait, w.lose)
	}
	w.mu.Unlock()
	if how < Swallow {
		w.end(how)
	}
}

// lost takes what the gateway sends into the void. After two pings its client
// has little patience left.
func (w *wired) lost(b []byte) {
	n := bytes.Count(b, []byte(`"method":"ping"`))
	w.mu.Lock()
	defer w.mu.Unlock()
	if before := w.pings; before < 2 && before+n >= 2 && !w.ended {
		w.timer.Reset(w.link.patience)
	}
	w.pings += n
}

// lose makes the client give up, and keeps the other side open for a while.
func (w *wired) lose() {
	w.mu.Lock()
	if !w.ended {
		w.timer = time.AfterFunc(10*w.link.patience, func() { w.end(Closed) })
	}
	w.mu.Unlock()
	w.user.lose()
}

// end closes both sides.
func (w *wired) end(how Way) {
	w.mu.Lock()
	first := !w.ended
	w.ended = true
	if w.timer != nil {
		w.timer.Stop()
	}
	w.mu.Unlock()
	if !first {
		return
	}
	close(w.gone)
	for _, conn := range []*net.TCPConn{w.client, w.server} {
		if how == Reset { // and what is on its way is lost
			_ = conn.SetLinger(0)
		}
		_ = conn.Close()
	}
}

// up carries what the client sends.
func (w *wired) up() {
	defer w.left()
	buf := make([]byte, 16<<10)
	sent := 0
	for {
		n, err := w.client.Read(buf)
		f, half := w.now()
		if n > 0 && !half {
			keep := n
			if f.When == InRequest {
				keep = min(n, max(0, f.Bytes-sent))
			}
			sent += n
			if !write(w.server, buf[:keep]) {
				w.end(Closed)
				return
			}
			if f.When == InRequest && sent >= f.Bytes {
				w.fail(InRequest)
			}
		}
		if err != nil {
			return
		}
	}
}

// left is told that the client has closed its side. Of a half-open connection
// the gateway does not learn that.
func (w *wired) left() {
	if _, half := w.now(); !half {
		w.end(Closed)
	}
}

// down carries what the gateway sends.
func (w *wired) down() {
	defer w.end(Closed)
	buf := make([]byte, 16<<10)
	for {
		n, err := w.server.Read(buf)
		f, half := w.now()
		if n > 0 && half {
			w.lost(buf[:n])
		} else if n > 0 {
			if f.Delay > 0 && !w.wait(f.Delay) {
				return
			}
			if !w.pass(f, buf[:n]) {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (w *wired) wait(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-w.gone:
		return false
	}
}

// pass passes on what may pass, and reports false at the end.
func (w *wired) pass(f Fault, b []byte) bool {
	for len(b) > 0 {
		was := w.scan.state
		at, n := w.scan.feed(b)
		keep, fails := n, false
		switch {
		case f.When == BeforeAnswer && at.begins > 0:
			keep, fails = 0, true
		case f.When == InAnswer && (at.begins > 0 || was != seeking):
			if at.begins > 0 {
				w.passed = 0
			}
			left := f.Bytes - w.passed
			w.passed += n - at.begins
			if stop := n - 1; at.ends > 0 || left < n-at.begins {
				keep, fails = min(stop, at.begins+max(0, left)), true
			}
		case f.When == AfterAnswer && at.ends > 0:
			fails = true
		}
		if !write(w.client, b[:keep]) {
			_, half := w.now()
			return half
		}
		if at.ends > 0 && keep == n {
			w.mu.Lock()
			w.whole = true
			w.mu.Unlock()
		}
		if fails {
			w.fail(f.When)
			if _, half := w.now(); half {
				return true
			}
			return false
		}
		b = b[n:]
	}
	return true
}

func write(to net.Conn, b []byte) bool {
	if len(b) == 0 {
		return true
	}
	_ = to.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, err := to.Write(b)
	return err == nil
}
