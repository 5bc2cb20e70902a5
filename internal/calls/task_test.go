package calls

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

func TestShelf(t *testing.T) {
	s := NewShelf[string]()
	id, ok := s.Enter("ann", "first")
	if !ok || !strings.HasPrefix(id, TaskPrefix) || len(id) < len(TaskPrefix)+10+1+26 {
		t.Fatalf("entered as %q: %v", id, ok)
	}
	for of, want := range map[string]bool{"ann": true, "bob": false, "": false} {
		if task, ok := s.Find(id, of); ok != want || ok && task != "first" {
			t.Errorf("%q finds %q: %v", of, task, ok)
		}
	}
	if s.Earlier(id) || !NewShelf[string]().Earlier(id) || s.Earlier("x") || s.Earlier("") {
		t.Error("ids of another shelf are not told apart")
	}
	second, _ := s.Enter("bob", "second")
	for _, tt := range []struct {
		id    string
		bytes int
		want  string
	}{
		{id, MaxTaskBytes / 2, "[]"}, {id, MaxTaskBytes, "[]"}, {"unknown", MaxTaskBytes, "[]"}, {second, MaxTaskBytes/2 + 1, "[first]"}, {second, 1, "[]"},
	} {
		if got := fmt.Sprint(s.Finished(tt.id, tt.bytes)); got != tt.want {
			t.Errorf("%d bytes of %s: %s gives up %s", tt.bytes, tt.id, got, tt.want)
		}
	}
	s.Forget(id)
	s.Forget(id)
	if _, ok := s.Find(id, "ann"); ok {
		t.Error("forgotten, and found")
	}
	s.Forget(second)
	if s.bytes != 0 || s.ended.Len() != 0 {
		t.Errorf("%d bytes of nothing, %d ended", s.bytes, s.ended.Len())
	}
	for n := range MaxTasks {
		if _, ok := s.Enter("ann", fmt.Sprint(n)); !ok {
			t.Fatalf("full at %d", n)
		}
	}
	if _, ok := s.Enter("ann", "more"); ok {
		t.Error("no limit")
	}
	all := s.Close()
	if len(all) != MaxTasks || !slices.Contains(all, "0") {
		t.Errorf("%d at the end", len(all))
	}
	if _, ok := s.Enter("ann", "late"); ok || len(s.Close()) != 0 {
		t.Error("closed, and open")
	}
	s.Forget(id)
}

func TestTaskState(t *testing.T) {
	at := time.Date(2025, 11, 25, 12, 0, 0, 1500000, time.FixedZone("", 3600))
	state := TaskState{ID: "a\"b", Status: "working", Created: at, Updated: at.Add(time.Hour)}
	const want = `{"taskId":"a\"b","status":"working","createdAt":"2025-11-25T11:00:00.001Z","lastUpdatedAt":"2025-11-25T12:00:00.001Z"}`
	if got := string(jsonrpc.AppendObject(nil, nil, nil, state.Members()...)); got != want {
		t.Errorf("got %s", got)
	}
	for params, want := range map[string]string{
		`{"progress":1}`: "1", `{"progress":1,"total":2.0}`: "1 of 2.0", `{"progress":1,"message":"x\ny"}`: "1: x\ny", `{"progress":1,"message":7}`: "1",
		`{"progress":1,"message":"` + strings.Repeat("é", maxStatus) + `"}`: "1: " + strings.Repeat("é", maxStatus/2-2),
	} {
		if got := ProgressMessage([]byte(params)); got != want {
			t.Errorf("%.40s: %.40q of %d", params, got, len(got))
		}
	}
	for age, want := range map[time.Duration]string{0: "1000", time.Minute: "3000", time.Hour: "5000"} {
		if got := string(PollInterval(age)); got != want {
			t.Errorf("after %v: %s", age, got)
		}
	}
}
