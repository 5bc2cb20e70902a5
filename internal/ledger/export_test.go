package ledger

// Empty reports whether no index has anything in it.
func (l *Ledger) Empty() bool {
	return len(l.calls)+len(l.keys)+len(l.shelf)+len(l.shelved)+len(l.dues.calls)+l.kept.Len()+l.bytes+len(l.acts) == 0
}

// Len returns how many calls are known.
func (l *Ledger) Len() int { return len(l.calls) }

// Orphans returns how many calls are Orphaned.
func (l *Ledger) Orphans() (n int) {
	for _, c := range l.calls {
		if c.state == Orphaned {
			n++
		}
	}
	return n
}
