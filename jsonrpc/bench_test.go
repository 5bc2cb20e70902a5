package jsonrpc

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkEnvelope is what every message costs: read, then written with
// another id and token.
func BenchmarkEnvelope(b *testing.B) {
	for _, size := range []int{256, 64 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			const head = `{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"_meta":{"progressToken":17},"name":"echo","arguments":{"text":"`
			raw := []byte(head + strings.Repeat(`lorem ipsum\n`, (size-len(head))/13) + `"}}}`)
			edits := []Edit{{ID, []byte("4711")}, {MetaToken, []byte("4711")}}
			var out []byte
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				m, err := Parse(raw)
				if err != nil {
					b.Fatal(err)
				}
				out = m.Append(out[:0], edits...)
			}
		})
	}
}
