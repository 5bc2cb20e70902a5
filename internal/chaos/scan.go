package chaos

import "strings"

// answerMark is how the text of an answer begins; its nonce follows.
const answerMark = `,"text":"answer `

const streamMark = "text/event-stream"

// scanner finds answers in what a connection carries from the gateway to its
// client, however it is cut into pieces.
type scanner struct {
	stream  int // matched of streamMark
	events  bool
	state   scanState
	matched int
	nonce   strings.Builder
	whole   bool // the nonce is
	depth   int
	line    int // line ends in a row
}

type scanState uint8

const (
	seeking scanState = iota
	inText            // of the answer
	closing           // the rest of the message
	tailing           // the end of its event
)

// Where an answer begins and ends: the indices after the mark, and after the
// last byte without which it would not be one; 0 for not here.
type found struct {
	begins, ends int
	nonce        string // of the one that ends
}

// feed looks at the next bytes. It stops at the end of an answer and returns how
// many it has looked at.
func (s *scanner) feed(b []byte) (f found, n int) {
	for i, c := range b {
		if !s.events {
			if s.stream = match(streamMark, s.stream, c); s.stream == len(streamMark) {
				s.events = true
			}
		}
		switch s.state {
		case seeking:
			if s.matched = match(answerMark, s.matched, c); s.matched == len(answerMark) {
				s.state, s.matched, s.whole = inText, 0, false
				s.nonce.Reset()
				f.begins = i + 1
			}
		case inText:
			s.text(c)
		case closing:
			if s.close(c) {
				f.ends = i + 1
			}
		case tailing:
			if c != '\n' {
				s.line = 0
			} else if s.line++; s.line == 2 {
				s.state, f.ends = seeking, i+1
			}
		}
		if f.ends > 0 {
			f.nonce = s.nonce.String()
			return f, i + 1
		}
	}
	return f, len(b)
}

func (s *scanner) text(c byte) {
	switch {
	case c == '"':
		s.state, s.depth, s.line = closing, 3, 0 // in the text's item, the result, the message
	case c == ' ':
		s.whole = true
	case !s.whole:
		s.nonce.WriteByte(c)
	}
}

// close follows the message to its end, and reports whether the answer ends
// there.
func (s *scanner) close(c byte) bool {
	switch c {
	case '{':
		s.depth++
	case '}':
		s.depth--
	}
	if s.depth > 0 {
		return false
	}
	if s.state = seeking; s.events {
		s.state = tailing
	}
	return !s.events
}

// match returns how much of mark is matched after one more byte. It serves marks
// whose first byte alone could begin them anew.
func match(mark string, matched int, c byte) int {
	switch {
	case mark[matched] == c:
		return matched + 1
	case mark[0] == c:
		return 1
	}
	return 0
}
