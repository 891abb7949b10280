package lazy

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/image/layers"
	"github.com/podd-project/podd/image/rootfs"
)

// TestAskersWait: a caller that finds all places taken waits for one, until its context ends. A release has a separate
// place.
func TestAskersWait(t *testing.T) {
	t.Parallel()
	c := &Client{asking: make(chan struct{}, 1), releasing: make(chan struct{}, 1)}
	c.asking <- struct{}{}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := c.ask(ctx, job{Root: "/nowhere"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ask() = %v, want that it has waited", err)
	}
	if _, err := c.ask(t.Context(), job{Root: "/nowhere", Release: []layers.Lazy{{}}}); err != nil {
		t.Errorf("a release = %v, want it to pass", err)
	}
	time.AfterFunc(100*time.Millisecond, func() { <-c.asking })
	if _, err := c.ask(t.Context(), job{Root: "/nowhere"}); err != nil {
		t.Errorf("ask() = %v, want that it gets the place", err)
	}
}

// TestStoreIsGone: without the key the layers are gone for good. If nothing is mounted at its path, they may come back.
func TestStoreIsGone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		root string
		gone bool
	}{{"", true}, {t.TempDir(), false}, {"/nowhere", false}} {
		client := New(func() string { return c.root }, logrus.StandardLogger())
		err := client.Mount(t.Context(), "i", rootfs.Overlay{Dir: t.TempDir()}, []*layers.Lazy{{}})
		if _, gone := errors.AsType[GoneError](err); gone != c.gone || errdefs.IsUnavailable(err) == c.gone {
			t.Errorf("root %q: Mount = %v, want GoneError: %v, otherwise unavailable", c.root, err, c.gone)
		}
		gone, err := client.Check(t.Context(), "i", map[string]layers.Lazy{"l": {}})
		if (gone["l"] != "") != c.gone || errdefs.IsUnavailable(err) == c.gone {
			t.Errorf("root %q: Check = %v, %v, want gone: %v, otherwise unavailable", c.root, gone, err, c.gone)
		}
	}
}
