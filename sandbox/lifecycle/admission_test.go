package lifecycle

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

var errEnd = errors.New("the end")

// ended returns a context that has ended with errEnd.
func ended(t *testing.T) context.Context {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errEnd)
	return ctx
}

func TestGate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		for range 2 {
			if !g.Enter() {
				t.Fatal("Enter = false, want an open gate")
			}
		}
		if err := g.Close(ended(t)); !errors.Is(err, errEnd) {
			t.Errorf("Close with two inside = %v, want %v", err, errEnd)
		}
		if g.Enter() {
			t.Error("Enter = true, want a gate that stays closed")
		}
		closed := make(chan error, 2)
		for range 2 {
			go func() { closed <- g.Close(t.Context()) }()
		}
		g.Leave()
		synctest.Wait()
		if len(closed) != 0 {
			t.Error("Close returned with one inside, want it to wait")
		}
		g.Leave()
		if first, second := <-closed, <-closed; first != nil || second != nil {
			t.Errorf("Close = %v and %v, want nil", first, second)
		}
		if err := g.Close(t.Context()); err != nil {
			t.Errorf("Close of a closed gate = %v, want nil", err)
		}
	})
}

func TestEmptyGateClosesAtOnce(t *testing.T) {
	t.Parallel()
	var g Gate
	if err := g.Close(t.Context()); err != nil || g.Enter() {
		t.Errorf("Close = %v, want nil and a closed gate", err)
	}
}

func TestSlot(t *testing.T) {
	t.Parallel()
	s := NewSlot()
	if err := s.Acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Acquire(ended(t)); !errors.Is(err, errEnd) {
		t.Errorf("Acquire of a held slot = %v, want %v", err, errEnd)
	}
	s.Release()
	if err := s.Acquire(t.Context()); err != nil {
		t.Errorf("Acquire of a released slot = %v, want nil", err)
	}
}

func TestStopsShareTheSoonestDeadline(t *testing.T) {
	t.Parallel()
	var stops Stops
	now := time.Now()
	stop, first := stops.Request(now.Add(time.Minute))
	if !first {
		t.Error("first = false, want the first request to do the stop")
	}
	_, moved := stops.At(stop)
	for _, c := range []struct{ asked, want time.Duration }{
		{time.Hour, time.Minute}, {time.Second, time.Second}, {time.Minute, time.Second},
	} {
		other, first := stops.Request(now.Add(c.asked))
		if at, _ := stops.At(other); other != stop || first || !at.Equal(now.Add(c.want)) {
			t.Errorf("after a request for %v: the same stop = %v, first = %v, deadline in %v, want true, false, %v",
				c.asked, other == stop, first, at.Sub(now), c.want)
		}
	}
	select {
	case <-moved:
	default:
		t.Error("the channel of At is open, want it closed when the deadline moved")
	}
	stops.Finish(stop, errEnd)
	<-stop.Done
	if !errors.Is(stop.Err, errEnd) {
		t.Errorf("Err = %v, want %v", stop.Err, errEnd)
	}
	if other, first := stops.Request(now); other == stop || !first {
		t.Errorf("after the end: the same stop = %v, first = %v, want another one", other == stop, first)
	}
}

func TestWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w Work
		release, waited := make(chan struct{}), make(chan struct{})
		if !w.Go(func() { <-release }) {
			t.Fatal("Go = false, want true")
		}
		go func() {
			w.Wait()
			close(waited)
		}()
		synctest.Wait()
		if w.Go(func() { t.Error("this ran after Wait was called") }) {
			t.Error("Go = true after Wait was called, want false")
		}
		select {
		case <-waited:
			t.Error("Wait returned before the work ended")
		default:
		}
		close(release)
		<-waited
	})
}
