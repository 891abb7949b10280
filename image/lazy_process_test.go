package image

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/podd-project/podd/image/layers"
)

// TestLazyAskersWait: a caller that finds all places taken waits for one, until its context ends. A release has a place
// of its own.
func TestLazyAskersWait(t *testing.T) {
	s := &Store{asking: make(chan struct{}, 1), releasing: make(chan struct{}, 1)}
	s.asking <- struct{}{}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.askStore(ctx, storeJob{Root: "/nowhere"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("askStore() = %v, want that it has waited", err)
	}
	if _, err := s.askStore(t.Context(), storeJob{Root: "/nowhere", Release: []layers.Lazy{{}}}); err != nil {
		t.Errorf("a release = %v, want it to pass", err)
	}
	time.AfterFunc(100*time.Millisecond, func() { <-s.asking })
	if _, err := s.askStore(t.Context(), storeJob{Root: "/nowhere"}); err != nil {
		t.Errorf("askStore() = %v, want that it gets the place", err)
	}
}
