package remote

import "sync"

// Memory is what links found out about servers, for the next link to the same
// URL. Its zero value is ready. Safe for concurrent use.
type Memory struct {
	mu     sync.Mutex // guards the field below
	events map[string]bool
}

// memorySize bounds the servers that are remembered.
const memorySize = 1000

// isEvents reports whether the server at a URL was found to speak HTTP+SSE.
func (m *Memory) isEvents(url string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.events[url]
}

// setEvents notes whether a server speaks HTTP+SSE.
func (m *Memory) setEvents(url string, is bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !is:
		delete(m.events, url)
	case m.events == nil || len(m.events) >= memorySize:
		m.events = map[string]bool{url: true}
	default:
		m.events[url] = true
	}
}
