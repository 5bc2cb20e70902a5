package calls

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/ledger"
)

// A request waits for its twin only while that one runs and is read.
func TestEnterWaitsForTwins(t *testing.T) {
	const like Likeness = 1
	for name, tt := range map[string]struct {
		before func(b *Book[*owned], x *owned)
		want   time.Duration
	}{
		"running and read":        {func(*Book[*owned], *owned) {}, settleTime},
		"running, lost":           {func(b *Book[*owned], x *owned) { b.Lose(x) }, 0},
		"running, read again":     {func(b *Book[*owned], x *owned) { b.Lose(x); b.Regain(x) }, settleTime},
		"ended":                   {func(b *Book[*owned], x *owned) { b.End(x, ledger.Answered) }, 0},
		"ended unread, then read": {func(b *Book[*owned], x *owned) { b.Lose(x); b.End(x, ledger.Answered); b.Regain(x) }, 0},
		"ended unread, read, delivered": {func(b *Book[*owned], x *owned) {
			b.Lose(x)
			b.End(x, ledger.Answered)
			b.Regain(x)
			b.Deliver(x)
		}, 0},
		"read, lost while a twin waits": {func(b *Book[*owned], x *owned) { time.AfterFunc(settleTime/2, func() { b.Lose(x) }) }, settleTime / 2},
		"read, ended while a twin waits": {func(b *Book[*owned], x *owned) {
			time.AfterFunc(settleTime/2, func() { b.End(x, ledger.Answered) })
		}, settleTime / 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				none := func(*owned) {}
				b := NewBook(ledger.Options{Window: time.Minute, TTL: time.Minute}, none, none)
				defer b.Close()
				x := new(owned)
				b.Enter(x.Claim(), like, x)
				tt.before(b, x)
				begin := time.Now()
				b.Enter(ledger.Claim{}, like, new(owned))
				if d := time.Since(begin); d != tt.want {
					t.Errorf("waited %v, want %v", d, tt.want)
				}
				begin = time.Now()
				b.Enter(ledger.Claim{}, like+1, new(owned))
				if d := time.Since(begin); d != 0 {
					t.Errorf("another call waited %v", d)
				}
			})
		})
	}
}

// owned is a call of nobody in particular.
type owned struct{ place Place }

func (o *owned) Place() *Place       { return &o.place }
func (o *owned) Claim() ledger.Claim { return ledger.Claim{Policy: ledger.Policy{Grace: time.Hour}} }
func (o *owned) Answer() []byte      { return []byte(`{}`) }
