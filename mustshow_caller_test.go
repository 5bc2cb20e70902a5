package holdfast_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/testkit"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// callerMain is a stateless client as a process of its own, which can take tasks.
//
//	caller call URL TOOL ARGUMENTS   calls, writes the task's id, and listens to it
//	caller poll URL TASK             looks at it until it has ended, and writes that
//	caller look URL TASK             looks at it once
func callerMain(args []string) int {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	c := testkit.NewClient(args[1], nil)
	defer c.Close()
	var err error
	switch args[0] {
	case "call":
		err = callAndListen(ctx, c, args[2], args[3])
	case "poll":
		err = poll(ctx, c, args[2], true)
	case "look":
		err = poll(ctx, c, args[2], false)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// postModern sends a request with the headers that it needs.
func postModern(ctx context.Context, c *testkit.Client, message, name string) (*testkit.Response, error) {
	m, err := jsonrpc.Parse([]byte(message))
	if err != nil {
		return nil, err
	}
	header := http.Header{"Mcp-Protocol-Version": {v2026}, "Mcp-Method": {string(m.Text(jsonrpc.Method))}}
	if name != "" {
		header.Set("Mcp-Name", name)
	}
	return c.Do(ctx, http.MethodPost, c.URL, []byte(message), header)
}

// askOnce sends a request and returns its answer.
func askOnce(ctx context.Context, c *testkit.Client, message, name string) ([]byte, error) {
	resp, err := postModern(ctx, c, message, name)
	if err != nil || resp.Stream == nil {
		if err == nil && resp.Status != http.StatusOK {
			err = fmt.Errorf("%d %s", resp.Status, resp.Body)
		}
		if err != nil {
			return nil, err
		}
		return resp.Body, nil
	}
	defer resp.Stream.Close()
	m, _, err := resp.Stream.Await(ctx, "1")
	return m.Bytes, err
}

func callAndListen(ctx context.Context, c *testkit.Client, tool, arguments string) error {
	answer, err := askOnce(ctx, c, modernCall("1", tool, arguments, takesTasks), tool)
	if err != nil {
		return err
	}
	m, err := jsonrpc.Parse(answer)
	if err != nil {
		return err
	}
	id := strings.Trim(string(jsonrpc.Get(m.Raw(jsonrpc.Result), "taskId")), `"`)
	if id == "" {
		return fmt.Errorf("no task: %s", answer)
	}
	resp, err := postModern(ctx, c, modern("2", "subscriptions/listen", fmt.Sprintf(`"notifications":{"taskIds":[%q]}`, id), takesTasks), "")
	if err != nil || resp.Stream == nil {
		return fmt.Errorf("no stream: %w", err)
	}
	if _, _, err := resp.Stream.Message(ctx); err != nil {
		return err
	}
	fmt.Println(id)
	<-ctx.Done()
	return errors.New("not killed in time")
}

// poll looks at a task; to its end, as often as it is asked to.
func poll(ctx context.Context, c *testkit.Client, task string, toEnd bool) error {
	for {
		answer, err := askOnce(ctx, c, modern("1", "tasks/get", fmt.Sprintf(`"taskId":%q`, task), takesTasks), task)
		if err != nil {
			return err
		}
		if toEnd && bytes.Contains(answer, []byte(`"status":"working"`)) {
			select {
			case <-time.After(time.Second): // its pollIntervalMs
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		fmt.Printf("%s\n", answer)
		return nil
	}
}

// caller starts such a process.
func caller(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, append([]string{"caller"}, args...)...)
	cmd.Env = append(os.Environ(), quickExit)
	cmd.Stderr = os.Stderr
	return cmd
}

// said is what such a process says, to its end.
func said(t *testing.T, args ...string) string {
	t.Helper()
	out, err := caller(t, args...).Output()
	if err != nil {
		t.Errorf("caller %s: %v", args, err)
	}
	return strings.TrimSpace(string(out))
}

// killed is the task that a process has begun which is killed then.
func killed(t *testing.T, args ...string) (task string) {
	t.Helper()
	cmd := caller(t, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fscanln(out, &task)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err != nil {
		t.Fatalf("caller %s: no task: %v", args, err)
	}
	return task
}
