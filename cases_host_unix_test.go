//go:build unix

package holdfast_test

import (
	"bufio"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast"
)

// C38: the host is killed, and somebody else holds a copy of stdin, so that no
// end of it comes. That nobody reads stdout is noticed without a write, with a
// call in flight, too.
func TestC38HostDiesWithoutAnEndOfInput(t *testing.T) {
	f := &farm{}
	really(t, setup{options: holdfast.Options{Server: holdfast.InProcess(f.serve)}}, func(t *testing.T, b *bench) {
		stdin, held, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer held.Close()
		defer stdin.Close()
		host, stdout, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer stdout.Close()
		defer host.Close()
		served := make(chan error, 1)
		go func() { served <- b.g.ServePipe(context.Background(), stdin, stdout) }() // ends with the test's checks
		if _, err := held.WriteString(hello("1", v11, "{}") + "\n" + initialized + "\n" + toolCall("2", "sleep", `{"ms":60000}`, "") + "\n"); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(host).ReadString('\n'); err != nil || !strings.Contains(line, `"result"`) {
			t.Fatal(line, err)
		}
		b.within(bound, "the call at the server", func() bool { return len(f.told(`"sleep"`)) == 1 })
		died := time.Now()
		if err := host.Close(); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-served:
			if err == nil || !strings.Contains(err.Error(), "nobody reads") {
				t.Errorf("ended with %v", err)
			}
			if took := time.Since(died); took > 3*time.Second {
				t.Errorf("that took %s", took)
			}
		case <-time.After(bound):
			t.Fatal("it goes on without its host")
		}
		b.within(bound, "the server's end", func() bool { return f.alive() == 0 || f.alive() == 1 && len(f.told("notifications/cancelled")) > 0 })
	})
}
