package lifecycle

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
)

func TestSlowSubscriberIsCutOffAndBlocksNobody(t *testing.T) {
	var b Bus[string]
	slow, _ := b.Subscribe()
	fast, _ := b.Subscribe()
	for range eventBuffer + 1 {
		b.Post(Created, "id", "pod")
		<-fast
	}
	n := 0
	for range slow { // ends because the channel was closed
		n++
	}
	if n != eventBuffer || b.Subscribers() != 1 {
		t.Fatalf("%d events before the cut, %d subscribers left, want %d and 1", n, b.Subscribers(), eventBuffer)
	}
}

func TestSendEnds(t *testing.T) {
	errSend, errLife, errCaller := errors.New("send"), errors.New("life"), errors.New("caller")
	post := func(n int) func(b *Bus[string], _, _ context.CancelCauseFunc) {
		return func(b *Bus[string], _, _ context.CancelCauseFunc) {
			for range n {
				b.Post(Started, "id", "pod")
			}
		}
	}
	for _, c := range []struct {
		name string
		act  func(b *Bus[string], endCaller, endLife context.CancelCauseFunc)
		send error // what the receiver returns
		want error
	}{
		{"by the receiver", post(1), errSend, errSend},
		{"when it falls behind", post(eventBuffer + 2), nil, errdefs.ErrResourceExhausted},
		{"with its caller", func(_ *Bus[string], end, _ context.CancelCauseFunc) { end(errCaller) }, nil, errCaller},
		{"with the engine", func(_ *Bus[string], _, end context.CancelCauseFunc) { end(errLife) }, nil, errLife},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var b Bus[string]
				ctx, endCaller := context.WithCancelCause(t.Context())
				life, endLife := context.WithCancelCause(t.Context())
				defer endCaller(nil)
				defer endLife(nil)
				ended := make(chan error, 1)
				go func() {
					ended <- b.Send(ctx, life, func(Event[string]) error {
						time.Sleep(time.Second)
						return c.send
					})
				}()
				synctest.Wait()
				c.act(&b, endCaller, endLife)
				if err := <-ended; !errors.Is(err, c.want) {
					t.Errorf("Send = %v, want %v", err, c.want)
				}
				if n := b.Subscribers(); n != 0 {
					t.Errorf("Subscribers = %d after the end, want 0", n)
				}
			})
		})
	}
}
