//go:build unix

package holdfast_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/internal/testkit"
)

// inFlight is how many calls a killed server has.
const inFlight = 100

// TestMustShow8KillChild: kill -9 of a server with 100 calls in flight: 100
// errors within a second, and the next call is served by a new one.
func TestMustShow8KillChild(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	base := gate(t, holdfast.Options{Server: scriptedChild()})
	t.Run("mcp", func(t *testing.T) { killOverMCP(ctx, t, base) })
	t.Run("sse", func(t *testing.T) { killOverSSE(ctx, t, base) })
}

func killOverMCP(ctx context.Context, t *testing.T, base string) {
	c := sessionOf(t, base+"/mcp", "2025-11-25", `{}`, nil)
	before := identity(t, c, "0")
	answers := make(chan testkit.Message, inFlight)
	var open, calls sync.WaitGroup
	open.Add(inFlight)
	for n := range inFlight {
		calls.Go(func() { // ends with its answer, or ctx
			id := fmt.Sprintf(`"call %d"`, n)
			resp, err := c.Post(ctx, testkit.CallTool(id, "sleep", `{"ms":60000}`))
			open.Done()
			if err != nil || resp.Stream == nil {
				t.Errorf("call %d: %v", n, err)
				return
			}
			m, _, err := resp.Stream.Await(ctx, id)
			if err != nil {
				t.Errorf("call %d: %v", n, err)
				return
			}
			answers <- m
		})
	}
	open.Wait() // a stream has begun for each, so the server has them
	killAndCount(t, before.Pid, answers)
	calls.Wait()
	if after := identity(t, c, "1"); after.Pid == before.Pid || string(after.ClientInfo) != string(before.ClientInfo) {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

func killOverSSE(ctx context.Context, t *testing.T, base string) {
	s := streamOf(t, base+"/sse", "2024-11-05", nil)
	const over = `{"over":"sse"}` // else it might be the last call of the client before, which reset its connections
	m, err := s.Call(ctx, "0", testkit.CallTool("0", "whoami", over))
	if err != nil {
		t.Fatal(err)
	}
	pid := pidOf(t, m)
	for n := range inFlight {
		if err := s.Deliver(ctx, testkit.CallTool(fmt.Sprintf(`"call %d"`, n), "sleep", `{"ms":60000}`)); err != nil {
			t.Fatal(err)
		}
	}
	answers := make(chan testkit.Message, inFlight)
	var reader sync.WaitGroup
	reader.Go(func() { // ends with the last answer, or ctx
		for range inFlight {
			m, _, err := s.Message(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			answers <- m
		}
	})
	killAndCount(t, pid, answers)
	reader.Wait()
	if m, err := s.Call(ctx, "1", testkit.CallTool("1", "whoami", over)); err != nil || pidOf(t, m) == pid {
		t.Errorf("afterwards: %s, %v", m.Bytes, err)
	}
}

func pidOf(t *testing.T, whoami testkit.Message) int {
	t.Helper()
	_, rest, _ := strings.Cut(whoami.Text(), `"pid":`)
	n, _, _ := strings.Cut(rest, ",")
	pid, err := strconv.Atoi(n)
	if err != nil {
		t.Fatalf("no pid in %s", whoami.Bytes)
	}
	return pid
}

// killAndCount kills a server and demands an error for each call in a second.
func killAndCount(t *testing.T, pid int, answers <-chan testkit.Message) {
	t.Helper()
	killed := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for range inFlight {
		select {
		case m := <-answers:
			if seen[string(m.ID)] || m.Error == nil || m.Error.Code != -32603 ||
				!strings.Contains(string(m.Error.Data), `"outcome":"unknown"`) || !strings.Contains(m.Error.Message, "killed") {
				t.Errorf("answered %s", m.Bytes)
			}
			seen[string(m.ID)] = true
		case <-time.After(time.Until(killed.Add(time.Second))):
			t.Fatalf("%d of %d errors came within a second", len(seen), inFlight)
		}
	}
	t.Logf("%d errors %v after the kill", len(seen), time.Since(killed).Round(time.Millisecond))
}

// quickServer is the smallest server with a tool call: a shell is started in
// little time, a thousand times.
const quickServer = `read -r hello
echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"quick","version":"1"}}}'
while read -r line; do case $line in
*tools/call*) id=${line#*'"id":'}; echo '{"jsonrpc":"2.0","id":'"${id%%,*}"',"result":{"content":[]}}';;
esac; done`

// holdings is what this process holds of what can leak.
type holdings struct{ goroutines, descriptors, children int }

// holdingsOf counts it. Outside Linux it counts the goroutines only.
func holdingsOf(t *testing.T) holdings {
	h := holdings{goroutines: runtime.NumGoroutine()}
	if runtime.GOOS == "linux" {
		files, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		h.descriptors = len(files)
		h.children = len(descendants(t, os.Getpid()))
	}
	return h
}

// within reports whether nothing is more than it was.
func (h holdings) within(before holdings) bool {
	return h.goroutines <= before.goroutines && h.descriptors <= before.descriptors && h.children <= before.children
}

// TestMustShow8Sessions: 1,000 sessions opened and ended, half of them over each
// binding: processes, descriptors and goroutines are back where they were.
func TestMustShow8Sessions(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*soon)
	defer cancel()
	server := holdfast.Command("sh", "-c", quickServer)
	server.MaxChildren = 100
	base := gate(t, holdfast.Options{Server: server, Timers: holdfast.Timers{ReconnectGrace: 500 * time.Millisecond, PingInterval: -1}})
	sessions := func(n int) {
		numbers := make(chan int)
		var workers sync.WaitGroup
		for range 8 {
			workers.Go(func() { // ends with numbers
				for n := range numbers {
					if err := oneSession(ctx, base, n%2 == 0); err != nil {
						t.Errorf("session %d: %v", n, err)
					}
				}
			})
		}
		for i := range n {
			numbers <- i
		}
		close(numbers)
		workers.Wait()
	}
	sessions(16) // what is made once is there
	before := settled(t)
	sessions(1000)
	testkit.Eventually(t, soon, fmt.Sprintf("all is as it was: %+v", before), func() bool { return holdingsOf(t).within(before) })
}

// settled waits until what is held does not get less any more.
func settled(t *testing.T) holdings {
	least := holdingsOf(t)
	for since := time.Now(); time.Since(since) < 500*time.Millisecond; {
		<-time.After(20 * time.Millisecond)
		if now := holdingsOf(t); now.within(least) && now != least {
			least, since = now, time.Now()
		}
	}
	return least
}

// oneSession opens a session, calls a tool and ends the session: by DELETE, or
// over HTTP+SSE by closing the stream.
func oneSession(ctx context.Context, base string, streamable bool) error {
	call := testkit.CallTool(`"c"`, "x", `{}`)
	if streamable {
		c := testkit.NewClient(base+"/mcp", nil)
		defer c.Close()
		if _, err := c.Initialize(ctx, "2025-06-18", `{}`); err != nil {
			return err
		}
		if _, err := c.Call(ctx, `"c"`, call); err != nil {
			return err
		}
		resp, err := c.Delete(ctx)
		if err == nil && resp.Status != 204 {
			err = fmt.Errorf("DELETE: %d", resp.Status)
		}
		return err
	}
	c := testkit.NewClient(base+"/sse", nil)
	defer c.Close()
	s, err := c.ConnectSSE(ctx, "")
	if err != nil {
		return err
	}
	defer s.Close()
	if _, err := s.Initialize(ctx, "2024-11-05", `{}`); err != nil {
		return err
	}
	_, err = s.Call(ctx, `"c"`, call)
	return err
}

// descendants are the processes that a process has started, and theirs. A
// process whose parent has ended is nobody's.
func descendants(t *testing.T, of int) (pids []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	children := map[int][]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it has just ended
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if parent, err := strconv.Atoi(fields[1]); err == nil {
			children[parent] = append(children[parent], pid)
		}
	}
	for next := children[of]; len(next) > 0; next = next[1:] {
		pids = append(pids, next[0])
		next = append(next, children[next[0]]...)
	}
	return pids
}

// TestMustShow8KillGateway: kill -9 of the gateway, a process of its own: no
// child is left and no grandchild, behind two shells that wait for them.
func TestMustShow8KillGateway(t *testing.T) {
	cmd, base := nestedGateway(t)
	tree := map[int]string{}
	for n := range 2 {
		c := sessionOf(t, base+"/mcp", "2025-11-25", `{}`, nil)
		who := identity(t, c, "1")
		m, err := c.Call(t.Context(), "2", testkit.CallTool("2", "spawn", `{"inherit":true}`))
		if err != nil {
			t.Fatal(err)
		}
		var spawned int
		if _, err := fmt.Sscanf(m.Text(), `{"pid":%d}`, &spawned); err != nil {
			t.Fatalf("%s: %v", m.Bytes, err)
		}
		tree[who.Ppid], tree[who.Pid], tree[spawned] = fmt.Sprint("shell ", n), fmt.Sprint("server ", n), fmt.Sprint("its child ", n)
	}
	if runtime.GOOS == "linux" {
		for _, pid := range descendants(t, cmd.Process.Pid) {
			if tree[pid] == "" {
				tree[pid] = "another descendant"
			}
		}
		if len(tree) < 2*4+1 { // two shells, a server and its child for each, and the companion
			t.Errorf("the tree is %v", tree)
		}
	}
	t.Cleanup(func() { // if the test fails
		for pid := range tree {
			if testkit.Alive(pid) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
	for pid, what := range tree {
		if !testkit.Alive(pid) {
			t.Errorf("%s (%d) has ended by itself", what, pid)
		}
	}
	killed := time.Now()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for pid, what := range tree {
		testkit.Eventually(t, soon/3, fmt.Sprintf("the end of %s (%d) after that of the gateway", what, pid), func() bool { return !testkit.Alive(pid) })
	}
	t.Logf("%d processes were gone %v after the kill", len(tree), time.Since(killed).Round(time.Millisecond))
}

// nestedGateway is "holdfast serve" as a process of its own, before a server
// that is deaf to the end of its input and to SIGTERM, behind two shells.
func nestedGateway(t *testing.T) (cmd *exec.Cmd, base string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// Without the redirection a shell gives what it starts beside itself no
	// stdin.
	const wrapper = `exec 3<&0; "$0" "$@" <&3 & wait`
	path, argv, _ := testkit.Command("-ignore-eof", "-ignore-term")
	args := append([]string{"serve", "--listen", "127.0.0.1:0", "--", "sh", "-c", wrapper, "sh", "-c", wrapper, path}, argv...)
	cmd = exec.Command(self, args...)
	stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = stderr.Close()
		if text, err := os.ReadFile(stderr.Name()); t.Failed() {
			t.Logf("the gateway's stderr, %v:\n%s", err, text)
		}
	})
	ready := bufio.NewScanner(out)
	if !ready.Scan() {
		t.Fatalf("no ready line: %v", ready.Err())
	}
	return cmd, strings.TrimPrefix(ready.Text(), "listening on ")
}
