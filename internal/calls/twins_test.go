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
	answer := []byte(`{}`)
	for name, tt := range map[string]struct {
		before func(b *Book[*owned], id ledger.ID)
		want   time.Duration
	}{
		"running and read":        {func(*Book[*owned], ledger.ID) {}, settleTime},
		"running, lost":           {func(b *Book[*owned], id ledger.ID) { b.Lose(id) }, 0},
		"running, read again":     {func(b *Book[*owned], id ledger.ID) { b.Lose(id); b.Regain(id) }, settleTime},
		"ended":                   {func(b *Book[*owned], id ledger.ID) { b.End(id, ledger.Answered, answer) }, 0},
		"ended unread, then read": {func(b *Book[*owned], id ledger.ID) { b.Lose(id); b.End(id, ledger.Answered, answer); b.Regain(id) }, 0},
		"ended unread, read, delivered": {func(b *Book[*owned], id ledger.ID) {
			b.Lose(id)
			b.End(id, ledger.Answered, answer)
			b.Regain(id)
			b.Deliver(id)
		}, 0},
		"read, lost while a twin waits": {func(b *Book[*owned], id ledger.ID) { time.AfterFunc(settleTime/2, func() { b.Lose(id) }) }, settleTime / 2},
		"read, ended while a twin waits": {func(b *Book[*owned], id ledger.ID) {
			time.AfterFunc(settleTime/2, func() { b.End(id, ledger.Answered, answer) })
		}, settleTime / 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				none := func(*owned) {}
				b := NewBook(ledger.Options{Window: time.Minute, TTL: time.Minute}, none, none)
				defer b.Close()
				id, _, _, _ := b.Enter(ledger.Claim{Policy: ledger.Policy{Grace: time.Hour}}, like, new(owned))
				tt.before(b, id)
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
type owned struct{ twin Twin }

func (o *owned) Twin() *Twin { return &o.twin }
