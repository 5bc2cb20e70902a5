package wire

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// moves notes which deadlines were set.
type moves struct {
	t  *testing.T
	at []time.Time
}

func (r *moves) set(at time.Time) error {
	r.at = append(r.at, at)
	return nil
}

func (r *moves) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// expect checks what was set since it was last called.
func (r *moves) expect(what string, at ...time.Time) {
	r.t.Helper()
	if !slices.EqualFunc(r.at, at, time.Time.Equal) {
		r.t.Errorf("%s: set to %v, want %v", what, r.at, at)
	}
	r.at = nil
}

// TestDeadlineIsSetWhereItIsMet: what is wanted while nothing is read changes
// nothing, until something is; then it is what was wanted last, or almost.
func TestDeadlineIsSetWhereItIsMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &moves{t: t}
		d := deadline{set: r.set}
		expect, want := r.expect, func(at time.Time) { r.must(d.want(at)) }
		begin := func() { r.must(d.begin()) }
		now := time.Now()
		begin()
		d.end()
		expect("none was wanted")
		want(now.Add(time.Minute))
		want(time.Time{})
		want(now.Add(16 * time.Second))
		expect("nothing is read")
		begin()
		expect("a read meets the last", now.Add(16*time.Second))
		want(time.Unix(1, 0))
		expect("a read under way is to end at once", time.Unix(1, 0))
		d.end()
		want(now.Add(16 * time.Second))
		begin()
		expect("the past is not almost the future", now.Add(16*time.Second))
		d.end()

		time.Sleep(900 * time.Millisecond)
		want(time.Now().Add(16 * time.Second))
		begin()
		expect("it has fifteen sixteenths of its time")
		d.end()
		time.Sleep(200 * time.Millisecond)
		last := time.Now().Add(16 * time.Second)
		want(last)
		begin()
		expect("it would have less", last)
		d.end()
		want(time.Now().Add(15 * time.Second))
		begin()
		expect("never more than was wanted", last.Add(-time.Second))
		d.end()
		want(time.Time{})
		begin()
		expect("none any more", time.Time{})
		d.end()
	})
}

// TestDeadlineThatCannotBeSet: the read says so, and is not under way.
func TestDeadlineThatCannotBeSet(t *testing.T) {
	failed := errors.New("closed")
	d := deadline{set: func(time.Time) error { return failed }}
	if err := d.want(time.Unix(1, 0)); err != nil {
		t.Error(err)
	}
	if err := d.begin(); !errors.Is(err, failed) || d.busy != 0 {
		t.Errorf("%v, %d under way", err, d.busy)
	}
}

// TestDeadlinesOfAConnection: on a real one they end a read that they are set
// before, and one that is under way; lifted, they end none; and half of it can be
// closed.
func TestDeadlinesOfAConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	_ = client.SetDeadline(time.Now().Add(10 * time.Second))
	c, err := Fateful(l).Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	var one [1]byte
	timeout := func(what string) {
		t.Helper()
		if _, err := c.Read(one[:]); !os.IsTimeout(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_ = c.SetReadDeadline(time.Unix(1, 0))
	timeout("it was over before the read")
	_ = c.SetDeadline(time.Time{})
	time.AfterFunc(20*time.Millisecond, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	timeout("it was moved while the read was under way")
	_ = c.SetDeadline(time.Time{})
	if _, err := client.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(one[:]); err != nil {
		t.Error("lifted:", err)
	}
	_ = c.SetWriteDeadline(time.Unix(1, 0))
	if _, err := c.Write(one[:]); !os.IsTimeout(err) {
		t.Error("a write after its deadline:", err)
	}
	_ = c.SetWriteDeadline(time.Now().Add(time.Minute))
	if _, err := c.Write(one[:]); err != nil {
		t.Error("a write before its deadline:", err)
	}
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Error(err)
	}
	if got, err := io.ReadAll(client); err != nil || len(got) != 1 {
		t.Errorf("%q, %v", got, err)
	}
}
