package sse

import (
	"bytes"
	"fmt"
	"testing"
)

// loop is a stream that repeats one block for ever.
type loop struct {
	block []byte
	at    int
}

func (l *loop) Read(b []byte) (int, error) {
	n := 0
	for n < len(b) {
		c := copy(b[n:], l.block[l.at:])
		n += c
		l.at = (l.at + c) % len(l.block)
	}
	return n, nil
}

var sizes = []int{256, 64 << 10}

func benchEvent(size int) Event {
	return Event{ID: "4f2a/1234", Name: "message", Data: bytes.Repeat([]byte("x"), size)}
}

func BenchmarkAppendEvent(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			e := benchEvent(size)
			var dst []byte
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				dst = AppendEvent(dst[:0], e)
			}
		})
	}
}

func BenchmarkDecoder(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			d := NewDecoder(&loop{block: AppendEvent(nil, benchEvent(size))}, 0)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := d.Next(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
