package network

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/containerd/errdefs"
)

func TestGateGivesAttachmentsTheRightOfWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		leave1, err := g.attach(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := g.collect(t.Context()); !errdefs.IsUnavailable(err) || !errors.Is(err, errAttachFirst) {
			t.Errorf("collect during an attachment = %v, want errAttachFirst", err)
		}
		leave2, err := g.attach(t.Context()) // attachments do not wait for each other
		if err != nil {
			t.Fatal(err)
		}
		leave1()
		leave2()

		ctx, end, err := g.collect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := g.collect(t.Context()); !errdefs.IsUnavailable(err) {
			t.Errorf("second collect = %v, want an unavailable error", err)
		}
		entered := make(chan struct{})
		go func() {
			leave, err := g.attach(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			close(entered)
			leave()
		}()
		synctest.Wait()
		if !errdefs.IsUnavailable(context.Cause(ctx)) {
			t.Errorf("cause of the collection's context = %v, want an unavailable error", context.Cause(ctx))
		}
		select {
		case <-entered:
			t.Error("attached during a collection that has not stopped yet")
		default:
		}
		end()
		synctest.Wait()
		<-entered

		// The previous collection has left no state.
		ctx, end, err = g.collect(t.Context())
		if err != nil || ctx.Err() != nil {
			t.Fatalf("collect = context %v, error %v, want neither", ctx.Err(), err)
		}
		dead, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := g.attach(dead); !errors.Is(err, context.Canceled) {
			t.Errorf("attach with a cancelled context = %v, want context.Canceled", err)
		}
		end()
	})
}
