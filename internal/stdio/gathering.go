package stdio

// gathering decides whether a writer that was woken lets those go first who are
// ready to send, too. Several short messages in one write cost both sides less;
// but to let others go first wakes idle processors, which costs more than it
// saves where few are ready. So it is tried now and then, and kept up while it
// pays.
type gathering struct {
	writes   int // of this trial
	messages int // that they carried
	rest     int // writes until the next trial
}

const (
	trialWrites = 64
	restWrites  = 16 * trialWrites
	// payingMessages in a write of short ones are worth the wait: with fewer it
	// cost more than it saved, measured with 2 to 16 senders on two processors.
	payingMessages = 2.5
	// shortMessage is, in bytes, what costs less than a write of its own.
	shortMessage = 4 << 10
)

// pays reports whether to let others go first.
func (g *gathering) pays() bool { return g.rest == 0 }

// wrote notes what one write carried.
func (g *gathering) wrote(messages, bytes int) {
	if g.rest > 0 {
		g.rest--
		return
	}
	if g.writes++; bytes < messages*shortMessage {
		g.messages += messages
	}
	if g.writes < trialWrites {
		return
	}
	if float64(g.messages) < payingMessages*trialWrites {
		g.rest = restWrites
	}
	g.writes, g.messages = 0, 0
}
