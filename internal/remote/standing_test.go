package remote

import (
	"net/http"
	"testing"
	"time"
)

// What comes after the handshake waits for the server's standing stream to begin,
// or for a moment: some servers forget what they ask before there is one.
func TestCallsWaitForTheStandingStream(t *testing.T) {
	for name, tt := range map[string]struct {
		begins time.Duration // the stream, after its request
		status int           // instead of a stream
		want   time.Duration // when the call goes out
	}{
		"it takes a while":       {begins: 300 * time.Millisecond, want: 300 * time.Millisecond},
		"it never begins":        {begins: time.Hour, want: standingWait},
		"there is none":          {status: http.StatusMethodNotAllowed},
		"it is not there at all": {begins: 100 * time.Millisecond, status: http.StatusBadGateway, want: 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, Options{}, legacy(func(_ *stage, w http.ResponseWriter, r *http.Request, got seen) {
				if got.verb != http.MethodGet {
					return
				}
				wait := time.NewTimer(tt.begins)
				defer wait.Stop()
				select {
				case <-wait.C:
				case <-r.Context().Done():
				}
				if tt.status != 0 {
					w.WriteHeader(tt.status)
				}
			}), func(s *stage) {
				s.send(hello)
				s.await("1", time.Second)
				began := time.Now()
				s.send(greeted)
				s.send(call5)
				s.await("5", 2*time.Second)
				if got := s.posts("tools/call")[0].at.Sub(began); got != tt.want {
					s.Errorf("the call was sent after %s, want %s", got, tt.want)
				}
			})
		})
	}
}
