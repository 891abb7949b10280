package bundle

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// removed replaces a secret.
const removed = "[removed]"

// minSecret is the length from which on a known value is searched for: a shorter one would be found everywhere.
const minSecret = 6

// Scrubber removes secrets from texts: known values, and everything that has the form of a credential.
type Scrubber struct {
	known [][]byte
}

// credential is a form of secrets.
type credential struct {
	// hint is in lower case in each text that has one: a search for it costs less.
	hint string
	// form has in $1 the part to keep.
	form *regexp.Regexp
}

// named returns the form of a value whose name contains a word.
func named(word string) credential {
	return credential{word, regexp.MustCompile(`(?i)(` + word + `[a-z0-9_-]*["']?\s*[:=]\s*["']?)[^\s"',}&]+`)}
}

// credentials are compiled when they are needed: the daemon makes no bundle.
var credentials = sync.OnceValue(func() []credential {
	return []credential{
		{"://", regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^/\s"'@]*:[^/\s"'@]*@`)}, // user:password in a URL
		{"bearer", regexp.MustCompile(`(?i)(\bbearer\s+)[a-z0-9+/_.~=-]{8,}`)},
		{"basic", regexp.MustCompile(`(?i)(\bbasic\s+)[a-z0-9+/_.~=-]{8,}`)},
		named("password"), named("passwd"), named("secret"), named("token"), named("credential"), named("apikey"),
		named("api_key"), named("api-key"),
		{"private key-----", regexp.MustCompile(
			`()-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(?:-----END [A-Z ]*PRIVATE KEY-----)?`)},
		{"eyj", regexp.MustCompile(`()\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`)}, // a JSON web token
	}
})

// Know makes values secret, wherever they are found, also as JSON and in URLs.
func (s *Scrubber) Know(values ...string) {
	for _, v := range values {
		quoted, err := json.Marshal(v)
		if err != nil {
			continue
		}
		for _, form := range []string{v, strings.Trim(string(quoted), `"`), url.QueryEscape(v), url.PathEscape(v)} {
			if len(form) >= minSecret {
				s.known = append(s.known, []byte(form))
			}
		}
	}
	// The longest first: one may contain another.
	slices.SortFunc(s.known, func(a, b []byte) int { return len(b) - len(a) })
	s.known = slices.CompactFunc(s.known, bytes.Equal)
}

// KnowEnv makes the values of NAME=value variables secret.
func (s *Scrubber) KnowEnv(env ...string) {
	for _, e := range env {
		if _, value, ok := strings.Cut(e, "="); ok {
			s.Know(value)
		}
	}
}

// KnowAuthFile makes the credentials of a containers-auth.json(5) secret. A file that cannot be read has none.
func (s *Scrubber) KnowAuthFile(path string) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return
	}
	var file struct {
		Auths map[string]map[string]any `json:"auths"`
	}
	if json.Unmarshal(raw, &file) != nil {
		return
	}
	for _, fields := range file.Auths {
		for _, field := range fields {
			text, ok := field.(string)
			if !ok {
				continue
			}
			s.Know(text)
			if plain, err := base64.StdEncoding.DecodeString(text); err == nil {
				_, password, _ := strings.Cut(string(plain), ":")
				s.Know(password)
			}
		}
	}
}

// Scrub returns text without secrets.
func (s *Scrubber) Scrub(text []byte) []byte {
	for _, secret := range s.known {
		text = bytes.ReplaceAll(text, secret, []byte(removed))
	}
	lower := bytes.ToLower(text)
	for _, c := range credentials() {
		if bytes.Contains(lower, []byte(c.hint)) {
			text = c.form.ReplaceAll(text, []byte("${1}"+removed))
		}
	}
	return text
}
