package exchange

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"time"
)

// errState: a requestState that is not ours, of somebody else, of another
// request, too old, or used before.
var errState = errors.New("requestState is unknown, expired, used already, or belongs to another request: call again without it")

// state is what requestState says, once opened (2026-07-28 basic/patterns/mrtr,
// "Server Requirements": principal, expiry, digest of the request). That it is
// used once only follows from the round.
type state struct {
	Run       string    `json:"r"`
	Round     int       `json:"n"`
	Principal string    `json:"p"`
	Digest    []byte    `json:"d"`
	Expires   time.Time `json:"e"`
}

// seal makes a requestState for the run's present round.
func (h *Host) seal(r *run, a *asked) string {
	plain, _ := json.Marshal(state{r.id, r.round, a.principal, r.digest[:], time.Now().Add(h.o.QuestionTimeout)})
	return h.conceal(plain, nil)
}

// conceal makes a requestState of a text. The label keeps kinds apart.
func (h *Host) conceal(plain, label []byte) string {
	nonce := make([]byte, h.o.Seal.NonceSize())
	_, _ = rand.Read(nonce)
	return base64.RawURLEncoding.EncodeToString(h.o.Seal.Seal(nonce, nonce, plain, label))
}

// reveal returns the text that conceal has made a requestState, raw JSON, of.
func (h *Host) reveal(raw, label []byte) ([]byte, error) {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return nil, errState
	}
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	n := h.o.Seal.NonceSize()
	if err != nil || len(sealed) < n || base64.RawURLEncoding.EncodeToString(sealed) != text { // spelled otherwise
		return nil, errState
	}
	plain, err := h.o.Seal.Open(nil, sealed[:n], sealed[n:], label)
	if err != nil {
		return nil, errState
	}
	return plain, nil
}

// unseal opens the requestState that a retry brings, raw JSON, and checks what
// it says against the retry.
func (h *Host) unseal(raw []byte, a *asked) (run string, round int, err error) {
	plain, err := h.reveal(raw, nil)
	if err != nil {
		return "", 0, err
	}
	var s state
	want := digest(a)
	if json.Unmarshal(plain, &s) != nil || s.Principal != a.principal || string(s.Digest) != string(want[:]) || time.Now().After(s.Expires) {
		return "", 0, errState
	}
	return s.Run, s.Round, nil
}

// digest tells one request from another: the method and the params, less what
// a retry changes. The order of members and white space do not count.
func digest(a *asked) [32]byte {
	var params map[string]any
	_ = json.Unmarshal(a.message.Raw(paramsField), &params)
	delete(params, "_meta")
	delete(params, "inputResponses")
	delete(params, "requestState")
	canonical, _ := json.Marshal(params)
	return sha256.Sum256(append([]byte(a.method+"\x00"), canonical...))
}
