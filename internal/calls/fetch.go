package calls

import (
	"maps"
	"sync"
	"time"
)

// Unfetched knows the tasks whose clients do not know yet how they end: a gateway
// that stops had better wait for them. The zero Unfetched is empty. Safe for
// concurrent use; it calls nobody.
type Unfetched struct {
	mu    sync.Mutex           // guards the field below
	ended map[string]time.Time // by the task's id; zero: it runs
}

// FetchTime is how long after its end a task's client is waited for, who looks
// at it every pollMost at the latest.
const FetchTime = 2 * pollMost

// Began says that a call is a task now.
func (u *Unfetched) Began(id string) { u.note(id, time.Time{}) }

// Ended says that a task has ended.
func (u *Unfetched) Ended(id string) { u.note(id, time.Now()) }

func (u *Unfetched) note(id string, at time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended == nil {
		u.ended = map[string]time.Time{}
	}
	if len(u.ended) >= 2*MaxTasks { // most of them were left
		u.pruneLocked()
	}
	u.ended[id] = at
}

// Fetched says that a task's client knows its end.
func (u *Unfetched) Fetched(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.ended, id)
}

// Count returns how many there are, less those that ended long ago.
func (u *Unfetched) Count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.pruneLocked()
	return len(u.ended)
}

func (u *Unfetched) pruneLocked() {
	maps.DeleteFunc(u.ended, func(_ string, at time.Time) bool { return !at.IsZero() && time.Since(at) > FetchTime })
}
