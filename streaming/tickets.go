package streaming

import (
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
)

// ticketBytes bounds what all unused tickets hold together; a command line can be megabytes long.
const ticketBytes = 32 << 20

// tickets are the requests that wait for a client to come with their token. A token is 130 bits from crypto/rand
// and works once. cri-streaming's own cache has 48 bits, too few for an address that any local process can try.
type tickets struct {
	ttl time.Duration
	max int

	mu      sync.Mutex
	waiting map[string]*ticket
	bytes   int
}

type ticket struct {
	request proto.Message
	size    int
	expiry  *time.Timer
}

func newTickets(ttl time.Duration, limit int) *tickets {
	return &tickets{ttl: ttl, max: limit, waiting: map[string]*ticket{}}
}

// issue keeps the request for ttl and returns its token; errdefs.ErrResourceExhausted when too many wait.
func (t *tickets) issue(request proto.Message) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	size := proto.Size(request)
	if len(t.waiting) >= t.max || t.bytes+size > ticketBytes {
		return "", fmt.Errorf("%w: %d streaming URLs wait for their client", errdefs.ErrResourceExhausted, len(t.waiting))
	}
	token := rand.Text()
	t.waiting[token] = &ticket{
		request: request, size: size,
		expiry: time.AfterFunc(t.ttl, func() { t.redeem(token) }),
	}
	t.bytes += size
	return token, nil
}

// valid tells whether the token can be redeemed now.
func (t *tickets) valid(token string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waiting[token] != nil
}

// redeem returns the token's request and forgets it; false for a token unknown, used or expired.
func (t *tickets) redeem(token string) (proto.Message, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := t.waiting[token]
	if found == nil {
		return nil, false
	}
	found.expiry.Stop()
	delete(t.waiting, token)
	t.bytes -= found.size
	return found.request, true
}

// clear forgets all.
func (t *tickets) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for token, waiting := range t.waiting {
		waiting.expiry.Stop()
		delete(t.waiting, token)
	}
	t.bytes = 0
}
