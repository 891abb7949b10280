package streaming

import (
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
)

// ticketBytes bounds the total size of all unused tickets; one command line can have megabytes.
const ticketBytes = 32 << 20

// tickets holds the requests whose URL is not used yet, by token. A token has 130 bits from crypto/rand and works once.
// The 48 bits of cri-streaming's cache are too few for an address that any local process can connect to.
type tickets struct {
	ttl time.Duration
	max int

	mu      sync.Mutex
	waiting map[string]*ticket
	bytes   int
}

type ticket struct {
	// id is that of the call that has asked for the URL.
	id      string
	request proto.Message
	size    int
	expiry  *time.Timer
}

func newTickets(ttl time.Duration, limit int) *tickets {
	return &tickets{ttl: ttl, max: limit, waiting: map[string]*ticket{}}
}

// issue keeps the request for ttl and returns its token, errdefs.ErrResourceExhausted when too many are unused.
func (t *tickets) issue(id string, request proto.Message) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	size := proto.Size(request)
	if len(t.waiting) >= t.max || t.bytes+size > ticketBytes {
		return "", fmt.Errorf("%w: %d streaming URLs of %d bytes are unused, retry later",
			errdefs.ErrResourceExhausted, len(t.waiting), t.bytes)
	}
	token := rand.Text()
	t.waiting[token] = &ticket{
		id: id, request: request, size: size,
		expiry: time.AfterFunc(t.ttl, func() { t.redeem(token) }),
	}
	t.bytes += size
	return token, nil
}

// peek returns the token's request and keeps it; false if the token is unknown, used or expired.
func (t *tickets) peek(token string) (proto.Message, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := t.waiting[token]
	if found == nil {
		return nil, false
	}
	return found.request, true
}

// redeem removes and returns the token's ticket; false if the token is unknown, used or expired.
func (t *tickets) redeem(token string) (*ticket, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := t.waiting[token]
	if found == nil {
		return nil, false
	}
	found.expiry.Stop()
	delete(t.waiting, token)
	t.bytes -= found.size
	return found, true
}

// clear removes all tickets.
func (t *tickets) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for token, waiting := range t.waiting {
		waiting.expiry.Stop()
		delete(t.waiting, token)
	}
	t.bytes = 0
}
