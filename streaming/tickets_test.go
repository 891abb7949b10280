package streaming

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestTicketIsGoodOnce(t *testing.T) {
	tickets := newTickets(time.Minute, 10)
	want := &cri.ExecRequest{ContainerId: "c1"}
	token, err := tickets.issue("", want)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := tickets.redeem(token[1:]); ok {
		t.Error("part of a token was redeemed")
	}
	if got, ok := tickets.redeem(token); !ok || got.request != want {
		t.Errorf("redeem = %v, %v, want %v, true", got, ok, want)
	}
	if _, ok := tickets.redeem(token); ok || valid(tickets, token) {
		t.Error("redeemed twice")
	}
	if _, ok := tickets.redeem(""); ok {
		t.Error("the empty token was redeemed")
	}
}

// TestTicketEntropy: 26 characters of base32 are 130 bits. Every character must occur at every position, and no token
// twice.
func TestTicketEntropy(t *testing.T) {
	tickets := newTickets(time.Minute, 10_000)
	seen := map[string]bool{}
	letters := make([]map[byte]bool, 26)
	for range 10_000 {
		token, err := tickets.issue("", &cri.ExecRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if len(token) != 26 || seen[token] {
			t.Fatalf("token %q: length %d, seen before %v; want 26 and false", token, len(token), seen[token])
		}
		seen[token] = true
		for i := range letters {
			if letters[i] == nil {
				letters[i] = map[byte]bool{}
			}
			letters[i][token[i]] = true
		}
	}
	for i, l := range letters {
		if len(l) != 32 {
			t.Errorf("position %d has %d values, want 32", i, len(l))
		}
	}
}

func TestTicketExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tickets := newTickets(time.Minute, 2)
		early, _ := tickets.issue("", &cri.ExecRequest{Cmd: []string{"x"}})
		time.Sleep(59 * time.Second)
		late, _ := tickets.issue("", &cri.ExecRequest{})
		if !valid(tickets, early) {
			t.Error("expired too early")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if _, ok := tickets.redeem(early); ok {
			t.Error("redeemed after its time")
		}
		if _, err := tickets.issue("", &cri.ExecRequest{}); err != nil {
			t.Errorf("issue after one expired: %v, want no error", err)
		}
		if _, ok := tickets.redeem(late); !ok {
			t.Error("the later ticket expired with the earlier")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(tickets.waiting) != 0 || tickets.bytes != 0 {
			t.Errorf("%d tickets of %d bytes after all expired, want none", len(tickets.waiting), tickets.bytes)
		}
	})
}

func TestTicketsAreBounded(t *testing.T) {
	long := strings.Repeat("x", ticketBytes/4)
	for _, c := range []struct {
		name    string
		request *cri.ExecRequest
		want    int
	}{
		{"by number", &cri.ExecRequest{}, 5},
		{"by bytes", &cri.ExecRequest{Cmd: []string{long}}, 3},
	} {
		tickets := newTickets(time.Minute, 5)
		var err error
		var token string
		n := -1
		for ; err == nil; n++ {
			var next string
			if next, err = tickets.issue("", c.request); err == nil {
				token = next
			}
		}
		if n != c.want || !errors.Is(err, errdefs.ErrResourceExhausted) {
			t.Errorf("%s: issued %d tickets, then %v; want %d, then resource exhausted", c.name, n, err, c.want)
		}
		tickets.redeem(token)
		if _, err := tickets.issue("", c.request); err != nil {
			t.Errorf("%s: issue after one was redeemed: %v, want no error", c.name, err)
		}
		tickets.clear()
		if len(tickets.waiting) != 0 || tickets.bytes != 0 {
			t.Errorf("%s: %d tickets of %d bytes after clear, want none", c.name, len(tickets.waiting), tickets.bytes)
		}
	}
}

// valid reports whether the token can be redeemed.
func valid(t *tickets, token string) bool {
	_, ok := t.peek(token)
	return ok
}
