package ledger

// Empty reports whether no index has anything in it.
func (l *Ledger) Empty() bool {
	return len(l.calls)+len(l.keys)+len(l.shelf)+len(l.shelved)+len(l.dues.calls)+l.kept.Len()+l.bytes+l.orphans+len(l.acts) == 0
}
