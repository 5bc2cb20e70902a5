package holdfast_test

import (
	"strconv"
	"strings"
)

// Calls of the matrix that go through a cut. How a call survives one is the
// era's; that it is executed once and answered once is not.

// cutWay is how a call of some goes on.
type cutWay struct{ who, how string }

// The ways through a cut between the client and the gateway, for the book.
var waysBefore = []cutWay{
	{"2025-03-26, 2025-06-18 and 2025-11-25 over Streamable HTTP", "`GET` with `Last-Event-ID` brings the rest of the stream, and in it the answer."},
	{"any over HTTP+SSE with a handshake", "That transport has no way back to a stream. The client opens another, with another session, and calls again: the equal call joins the one that has lost its reader."},
	{"2026-07-28", "To close the stream is to cancel there, and no stream can be resumed. What outlives a connection in that revision is a task: the tool is configured `task: always`, and another connection gets what became of it."},
}

// The ways through a cut between the gateway and the server.
var waysBehind = []cutWay{
	{"2025-03-26, 2025-06-18 and 2025-11-25 over Streamable HTTP", "The gateway comes back with `Last-Event-ID`, and the client gets the server's answer."},
	{"any over HTTP+SSE", "There is no way back to the stream. The call ends with an error, `outcome` `unknown`, and is not sent again; the next one goes over another session."},
	{"2026-07-28 over Streamable HTTP", "Likewise: the server must take the closed stream for a cancellation."},
}

// cutBefore cuts the client's connection while its call runs.
func (m *meeting) cutBefore() {
	m.ran["job"]++
	switch {
	case m.client.stateless():
		m.cutAndPoll()
	case m.client.way == waySSE:
		m.cutAndCallAgain()
	default:
		m.cutAndResume()
	}
}

// cutAndResume comes back to the same stream.
func (m *meeting) cutAndResume() {
	call := m.client.send(m.c, `"job"`, "tools/call", `"name":"job","arguments":{}`, `"progressToken":"job"`)
	m.c.await("notifications/progress", `"progressToken":"job"`)
	call.cut()
	call.done()
	close(m.open["job"])
	m.c.listen("/mcp", call.lastEvent())
	if got := m.c.answer(`"job"`); !strings.Contains(got, `"done"`) {
		m.t.Errorf("answered %s", got)
	}
}

// cutAndCallAgain comes back as a stranger with an equal call.
func (m *meeting) cutAndCallAgain() {
	old := m.client.connect(m.b, m.server)
	call := m.client.send(old, `"job"`, "tools/call", `"name":"job","arguments":{}`, `"progressToken":"job"`)
	old.await("notifications/progress", `"progressToken":"job"`)
	old.lose(call, `"job"`)
	young := m.client.connect(m.b, m.server)
	m.client.send(young, `"job"`, "tools/call", `"name":"job","arguments":{}`, `"progressToken":"again"`)
	young.await("notifications/progress", `"progressToken":"again"`)
	close(m.open["job"])
	wantAnswer(m.t, young.answer(`"job"`), `"done"`, adopted)
}

// cutAndPoll asks over another connection what became of a task.
func (m *meeting) cutAndPoll() {
	old := m.client.connect(m.b, m.server)
	old.sendModern(modernCall(`"job"`, "job", `{}`, takesTasks))
	id := taskID(m.t, old.answer(`"job"`))
	m.b.within(bound, "the call at the server", func() bool { return m.f.executed()["job"] == 1 })
	old.close()
	close(m.open["job"])
	young := m.client.connect(m.b, m.server)
	got, looks := "", 0
	m.b.within(bound, "the end of the task", func() bool {
		looks++
		got = young.aboutTask(strconv.Itoa(looks), "tasks/get", id)
		return strings.Contains(got, `"status":"completed"`)
	})
	wantAnswer(m.t, got, `"done"`)
}

// cutBehind cuts the connections to the server while a call runs.
func (m *meeting) cutBehind() {
	m.client.send(m.c, `"lost"`, "tools/call", `"name":"lost","arguments":{}`, `"progressToken":"lost"`)
	m.ran["lost"]++
	m.c.await("notifications/progress", `"progressToken":"lost"`)
	if m.road.CutAll() == 0 {
		m.t.Error("there was nothing to cut")
	}
	close(m.open["lost"])
	want := `"outcome":"unknown"`
	resumes := m.server.way == wayHTTP && !m.server.stateless()
	if resumes {
		want = `"structuredContent":"done"`
	}
	if got := m.c.answer(`"lost"`); !strings.Contains(got, want) {
		m.t.Errorf("answered %s, want %s", got, want)
	}
	if n := m.road.resumed.Load(); n == 0 == resumes {
		m.t.Errorf("%d streams were resumed", n)
	}
	m.tool("after", "echo", "", 1, `"structuredContent":{}`)
}
