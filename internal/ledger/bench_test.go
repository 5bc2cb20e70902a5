package ledger_test

import (
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/ledger"
)

var options = ledger.Options{Window: 2 * time.Minute, TTL: 10 * time.Minute, MaxKept: 10_000, MaxBytes: 64 << 20}

// busy returns a ledger with calls that run, and one orphan of another
// principal.
func busy(running int) *ledger.Ledger {
	l := ledger.New(options)
	now := time.Now()
	for range running {
		l.Enter(now, claim("ada", "", 1))
	}
	id, _, _ := l.Enter(now, claim("bob", "", 1))
	l.Lose(now, id)
	return l
}

// BenchmarkShortCall is what every call costs that loses no reader.
func BenchmarkShortCall(b *testing.B) {
	l := busy(1000)
	now := time.Now()
	c := claim("ada", "", 2)
	c.Print = func() ledger.Print { panic("computed") }
	answer := []byte(`{"content":[]}`)
	b.ReportAllocs()
	for b.Loop() {
		id, _, _ := l.Enter(now, c)
		l.End(now, id, ledger.Answered, answer)
		l.Deliver(now, id)
	}
}

// BenchmarkAdopted is a call that is lost, joined and answered; what fingerprints
// cost is measured where they are made.
func BenchmarkAdopted(b *testing.B) {
	l := busy(1000)
	now := time.Now()
	c := claim("ada", "", 2)
	b.ReportAllocs()
	for b.Loop() {
		id, _, _ := l.Enter(now, c)
		l.Lose(now, id)
		if again, out, _ := l.Enter(now, c); again != id || out != ledger.Joined {
			b.Fatal(again, out)
		}
		l.End(now, id, ledger.Answered, nil)
		l.Deliver(now, id)
	}
}

// TestShortCallAllocations holds the price of a short call.
func TestShortCallAllocations(t *testing.T) {
	l := busy(1000)
	now := time.Now()
	c := claim("ada", "", 2)
	c.Print = func() ledger.Print { t.Error("computed"); return ledger.Print{} }
	if n := testing.AllocsPerRun(1000, func() {
		id, _, _ := l.Enter(now, c)
		l.End(now, id, ledger.Answered, nil)
		l.Deliver(now, id)
	}); n > 2 {
		t.Errorf("%v allocations, want 2 at most", n)
	}
}
