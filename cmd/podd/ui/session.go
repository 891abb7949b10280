package ui

import (
	"crypto/rand"
	"crypto/subtle"
	"net/http"
	"strings"
	"sync"
)

// session lets one browser read the node. The token in the address that the command prints is exchanged, once, for a
// key, which the page sends in the header Authorization of each request.
//
// The key is not a cookie: a browser sends the cookies of 127.0.0.1 to every port, and another local user may listen on
// one. A page's session storage is only visible to pages of the same port.
type session struct {
	mu    sync.Mutex // guards token
	token string     // "" once it was used
	key   string
}

// newSession returns a session and its token. Both secrets have 128 random bits.
func newSession() (s *session, token string) {
	token = rand.Text()
	return &session{token: token, key: rand.Text()}, token
}

// exchange returns the key for the token, the first time. A wrong token does not use it up.
func (s *session) exchange(token string) (key string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.token == "" || !equal(token, s.token) {
		return "", false
	}
	s.token = ""
	return s.key, true
}

// allows reports whether the request has the key.
func (s *session) allows(r *http.Request) bool {
	key, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return ok && equal(key, s.key)
}

// equal takes the same time wherever the secrets differ.
func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
