package usage

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// slowGauge keeps something open from measure to close. A measurement takes until release is closed, and calls end.
type slowGauge struct {
	started, release chan struct{}
	end              func()
	open             bool
}

func (g *slowGauge) measure(*int, Want) (*int, error) {
	g.open = true
	close(g.started)
	<-g.release
	g.end()
	return new(int), nil
}

func (g *slowGauge) due(*int, Want) bool     { return true }
func (g *slowGauge) patience() time.Duration { return FirstPatience }
func (g *slowGauge) close()                  { g.open = false }

// TestProbeClosedDuringMeasurement: the gauge is closed at the end of the measurement, also when a caller that waits
// for its turn gives up at that moment.
func TestProbeClosedDuringMeasurement(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // the waiter runs only when the measurement has ended
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		g := &slowGauge{started: make(chan struct{}), release: make(chan struct{}), end: cancel}
		p := newProbe(g, func(error) time.Duration { return 0 })
		go p.measure(t.Context(), Want{})
		<-g.started
		go p.measure(ctx, Want{})
		synctest.Wait()
		p.close()
		close(g.release)
		synctest.Wait()
		if g.open {
			t.Error("the gauge of a closed probe is open, want closed")
		}
	})
}
