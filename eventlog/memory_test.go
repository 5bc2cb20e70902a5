package eventlog

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

func data(n int) []byte { return fmt.Append(nil, n) }

func seqs(events []Event) (out []Seq) {
	for _, e := range events {
		out = append(out, e.Seq)
	}
	return out
}

func TestReadFromAnyPosition(t *testing.T) {
	var m Memory
	for n := range 5 {
		m.Append(data(n+1), false)
	}
	for after := range Seq(6) {
		events, missed, more := m.Read(nil, after, 1<<20)
		if len(events) != 5-int(after) || missed != 0 || !more {
			t.Errorf("after %d: %d events, missed %d, more %v", after, len(events), missed, more)
		}
		for i, e := range events {
			if want := after + Seq(i) + 1; e.Seq != want || !bytes.Equal(e.Data, data(int(want))) {
				t.Errorf("after %d: event %d is %d %q", after, i, e.Seq, e.Data)
			}
		}
	}
	events, _, _ := m.Read(nil, 1, 1) // one at least
	if !slices.Equal(seqs(events), []Seq{2}) {
		t.Errorf("small batch: %v", seqs(events))
	}
}

func TestTrimTellsWhatIsMissing(t *testing.T) {
	m := NewMemory(Limits{Events: 3})
	for n := range 10 {
		m.Append(data(n+1), false)
	}
	events, missed, _ := m.Read(nil, 2, 1<<20)
	if !slices.Equal(seqs(events), []Seq{8, 9, 10}) || missed != 5 {
		t.Errorf("got %v, missed %d; want 8 9 10 and 5", seqs(events), missed)
	}
	if _, missed, _ := m.Read(nil, 7, 1<<20); missed != 0 {
		t.Errorf("after 7 nothing is missing, got %d", missed)
	}
	for after, want := range map[Seq]error{2: ErrTrimmed, 6: ErrTrimmed, 7: nil, 10: nil, 11: ErrUnknown} {
		if got := m.Check(after); got != want {
			t.Errorf("Check(%d) = %v, want %v", after, got, want)
		}
	}
}

func TestKeptOutliveTheWindowUntilDelivered(t *testing.T) {
	m := NewMemory(Limits{Events: 4})
	m.Append(data(1), false)
	m.Append(data(2), true)
	for n := 3; n <= 500; n++ {
		m.Append(data(n), n == 100)
	}
	events, missed, _ := m.Read(nil, 0, 1<<20)
	if !slices.Equal(seqs(events), []Seq{2, 100, 499, 500}) || missed != 496 {
		t.Fatalf("got %v, missed %d", seqs(events), missed)
	}
	if n, b := m.Kept(); n != 2 || b != 4 {
		t.Errorf("Kept() = %d, %d bytes", n, b)
	}
	if c := cap(m.entries); c > 200 {
		t.Errorf("%d entries allocated for 4 events", c)
	}
	m.Delivered(2)
	events, _, _ = m.Read(nil, 0, 1<<20)
	if !slices.Equal(seqs(events), []Seq{100, 499, 500}) {
		t.Errorf("after delivery of 2: %v", seqs(events))
	}
	m.Delivered(500)
	if n, b := m.Kept(); n != 0 || b != 0 {
		t.Errorf("Kept() = %d, %d bytes, want none", n, b)
	}
}

func TestBudgetIsSharedAndReturned(t *testing.T) {
	b := &Budget{Max: 10_000}
	logs := []*Memory{NewMemory(Limits{Total: b, Floor: 500}), NewMemory(Limits{Total: b, Floor: 500})}
	for range 200 {
		for _, m := range logs {
			m.Append(make([]byte, 100), false)
		}
	}
	if used := b.Used(); used > 10_000+200 {
		t.Errorf("%d bytes held, want at most about 10,000", used)
	}
	for _, m := range logs {
		if m.Size() < 500-150 {
			t.Errorf("a log was trimmed to %d bytes, below its floor", m.Size())
		}
		m.Release()
	}
	if b.Used() != 0 {
		t.Errorf("%d bytes still counted after Release", b.Used())
	}
}

func TestEnd(t *testing.T) {
	var m Memory
	m.Append(data(1), true)
	woken := 0
	m.Wake(1, func() { woken++ })
	changed := m.Changed(1)
	m.End()
	<-changed
	if woken != 1 {
		t.Errorf("woken %d times", woken)
	}
	if m.Append(data(2), false) != 0 {
		t.Error("appended after the end")
	}
	if events, _, more := m.Read(nil, 0, 1); len(events) != 1 || more {
		t.Errorf("%d events, more %v", len(events), more)
	}
	m.Wake(0, func() { woken++ })
	if woken != 2 {
		t.Error("Wake on an ended log must call at once")
	}
}

// TestNothingLostNorRepeated reads 20,000 events with random breaks while they
// are written: run it with -race.
func TestNothingLostNorRepeated(t *testing.T) {
	const total = 20_000
	m := NewMemory(Limits{Events: total, Bytes: 1 << 30})
	go func() {
		for n := range total {
			m.Append(data(n+1), n%7 == 0)
		}
		m.End()
	}()
	var pos Seq
	var batch []Event
	for {
		events, missed, more := m.Read(batch[:0], pos, 1+rand.IntN(200))
		if missed != 0 {
			t.Fatalf("missed %d", missed)
		}
		for _, e := range events {
			if e.Seq != pos+1 || string(e.Data) != string(data(int(e.Seq))) {
				t.Fatalf("after %d came %d %q", pos, e.Seq, e.Data)
			}
			pos = e.Seq
			if rand.IntN(100) == 0 {
				break // the connection broke: read again from pos
			}
		}
		m.Delivered(pos)
		if len(events) == 0 && !more {
			break
		}
		<-m.Changed(pos)
	}
	if pos != total {
		t.Errorf("read %d of %d", pos, total)
	}
}

// TestTrimAgainstModel compares the log with the plainest one that could be.
func TestTrimAgainstModel(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for round := range 200 {
		m := NewMemory(Limits{Events: 1 + rnd.IntN(8)})
		kept := map[Seq]bool{}
		var head, delivered, reader Seq
		for range 300 {
			switch rnd.IntN(4) {
			case 0:
				events, missed, _ := m.Read(nil, reader, 1+rnd.IntN(6))
				sum := uint64(len(events)) + missed
				if n := len(events); n > 0 && Seq(sum) != events[n-1].Seq-reader {
					t.Fatalf("round %d: after %d came %v with %d missed", round, reader, seqs(events), missed)
				}
				for s := range kept {
					if s > reader && len(events) > 0 && s <= events[len(events)-1].Seq && !slices.Contains(seqs(events), s) {
						t.Fatalf("round %d: kept event %d was lost", round, s)
					}
				}
				if n := len(events); n > 0 {
					reader = events[n-1].Seq
				}
			case 1:
				if rnd.IntN(4) == 0 {
					delivered = max(delivered, reader)
					m.Delivered(delivered)
					for s := range kept {
						if s <= delivered {
							delete(kept, s)
						}
					}
				}
			default:
				head++
				keep := rnd.IntN(5) == 0
				if got := m.Append(data(int(head)), keep); got != head {
					t.Fatalf("Append gave %d, want %d", got, head)
				}
				if keep {
					kept[head] = true
				}
			}
			if n, _ := m.Kept(); n != len(kept) {
				t.Fatalf("round %d: %d kept, want %d", round, n, len(kept))
			}
		}
	}
}

func BenchmarkAppendRead(b *testing.B) {
	m := NewMemory(Limits{})
	payload := make([]byte, 256)
	var pos Seq
	batch := make([]Event, 0, 8)
	b.ReportAllocs()
	for b.Loop() {
		m.Append(payload, false)
		events, _, _ := m.Read(batch[:0], pos, 1<<16)
		pos = events[len(events)-1].Seq
	}
}
