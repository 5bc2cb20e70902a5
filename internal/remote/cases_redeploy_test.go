package remote

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// C40: the server is deployed anew while a request is on its way to the session
// that is lost with it. What the POST is answered with says what became of it.
func TestC40DeployedAnewWhileARequestIsOnItsWay(t *testing.T) {
	for name, tt := range map[string]struct {
		status int
		want   string
	}{
		"the old endpoint is unknown": {http.StatusNotFound, `"result"`},
		"it was taken":                {http.StatusAccepted, `"outcome":"unknown"`},
	} {
		t.Run(name, func(t *testing.T) {
			v := &sseServer{}
			var late chan struct{}
			play(t, Options{}, func(s *stage, w http.ResponseWriter, r *http.Request, got seen) {
				if got.is("tools/call") && got.path == "/message?s=1" {
					<-late
					w.WriteHeader(tt.status)
					return
				}
				v.serve(s, w, r, got)
			}, func(s *stage) {
				late = make(chan struct{})
				s.handshake()
				s.send(call5)
				time.Sleep(time.Second)
				v.cut()
				time.Sleep(10 * time.Second) // the next stream names another endpoint
				if got := s.answers("5"); len(got) != 0 {
					s.Fatalf("answered before anything is known: %s", got)
				}
				close(late)
				if got := s.await("5", 5*time.Second); !strings.Contains(got, tt.want) {
					s.Errorf("answered %s", got)
				}
				taken := s.requests(func(r seen) bool { return r.is("tools/call") && r.path == "/message?s=2" })
				if again := tt.status == http.StatusNotFound; again != (len(taken) == 1) {
					s.Errorf("sent to the new session %d times", len(taken))
				}
				s.onlyOnce()
			})
		})
	}
}
