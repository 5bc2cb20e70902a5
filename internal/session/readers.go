package session

import (
	"slices"

	"github.com/holdfast-mcp/holdfast/eventlog"
)

// ended is an answer in a stream's log that its client may not have yet.
type ended struct {
	seq   eventlog.Seq
	entry *call
}

// delivered confirms answers up to a position.
func (st *Stream) delivered(pos eventlog.Seq) {
	s := st.sess
	if s.book == nil {
		return
	}
	s.mu.Lock()
	n := 0
	for n < len(st.ends) && st.ends[n].seq <= pos {
		n++
	}
	var few [4]ended // st.one is taken again for the next answer
	done := append(few[:0], st.ends[:n]...)
	if st.ends = st.ends[n:]; len(st.ends) == 0 {
		st.ends = nil
	}
	s.mu.Unlock()
	for _, e := range done {
		s.book.Deliver(e.entry)
	}
}

// readChanged tells the book whether anybody reads the stream. It is called after each
// change of that, without the lock.
func (st *Stream) readChanged() {
	s := st.sess
	if s.o.Tasks != nil {
		s.readersChanged()
	}
	if s.book == nil {
		return
	}
	var running []*call
	s.mu.Lock()
	read := st.reader != nil || st.posting
	if read != st.lost || st != &s.general && st.pending <= 0 && len(st.ends) == 0 {
		s.mu.Unlock()
		return
	}
	st.lost = !read
	for _, c := range s.calls {
		if c.st == st && c.root().entry != nil {
			running = append(running, c)
		}
	}
	ends := slices.Clone(st.ends)
	s.mu.Unlock()
	for _, c := range running {
		switch {
		case read:
			s.book.Regain(c.root().entry)
		case !c.othersRead():
			s.book.Lose(c.root().entry)
		}
	}
	for _, e := range ends {
		if read {
			s.book.Regain(e.entry)
		} else {
			s.book.Lose(e.entry)
		}
	}
}

// othersRead reports whether somebody else reads what the call's root says.
func (c *call) othersRead() bool {
	root := c.root()
	o := root.sess
	o.mu.Lock()
	others := append([]*call{root.currentLocked()}, root.more...)
	o.mu.Unlock()
	for _, f := range others {
		if f != c && f.st.isRead() {
			return true
		}
	}
	return false
}

func (st *Stream) isRead() bool {
	st.sess.mu.Lock()
	defer st.sess.mu.Unlock()
	return st.reader != nil || st.posting
}
