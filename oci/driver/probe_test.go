package driver

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
)

var errMissing = errors.New("it is not installed")

// program is a fake of the program to probe. It counts its runs.
type program struct {
	runs  atomic.Int64
	probe func(context.Context) (string, error)
}

func (p *program) run(ctx context.Context) (string, error) {
	p.runs.Add(1)
	return p.probe(ctx)
}

func (p *program) hang(ctx context.Context) (string, error) {
	<-ctx.Done()
	return "", context.Cause(ctx)
}

func returns(s string, err error) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return s, err }
}

func want(t *testing.T, c *ProbeCache[string], value string, err error) {
	t.Helper()
	if got, gotErr := c.Get(); got != value || !errors.Is(gotErr, err) {
		t.Errorf("got %q, %v, want %q, %v", got, gotErr, value, err)
	}
}

func TestProbeResultIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &program{probe: returns("1.0", nil)}
		c := NewProbeCache("h", "", p.run)
		want(t, c, "1.0", nil)
		time.Sleep(24 * time.Hour)
		want(t, c, "1.0", nil)
		if n := p.runs.Load(); n != 1 {
			t.Errorf("the program ran %d times, want once", n)
		}
		p.probe = returns("2.0", nil)
		if err := c.Probe(t.Context()); err != nil {
			t.Error(err)
		}
		want(t, c, "2.0", nil)
	})
}

// hurry is a probe that runs out of time before it has asked for everything.
func hurry(ctx context.Context) (string, error) {
	<-ctx.Done()
	return "half", nil
}

// TestHurriedProbeIsRepeated: at once, and who asks waits for that, but not for further repetitions.
func TestHurriedProbeIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &program{probe: hurry}
		c := NewProbeCache("h", "", p.run)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Probe(ctx); err != nil {
			t.Errorf("Probe = %v, want nil", err)
		}
		begin := time.Now()
		for range 3 {
			want(t, c, "half", nil)
		}
		if took := time.Since(begin); took != ProbeTimeout {
			t.Errorf("3 calls of Get took %s, want %s for one probe", took, ProbeTimeout)
		}
		p.probe = returns("whole", nil)
		time.Sleep(probeRetry + 1)
		want(t, c, "half", nil)
		synctest.Wait()
		want(t, c, "whole", nil)
		time.Sleep(24 * time.Hour)
		want(t, c, "whole", nil)
		if n := p.runs.Load(); n != 3 {
			t.Errorf("the program ran %d times, want 3 times", n)
		}
	})
}

// TestHurriedProbeThatFails: the result of an earlier one is kept, and the program runs at once only once more.
func TestHurriedProbeThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &program{probe: hurry}
		c := NewProbeCache("h", "", p.run)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Probe(ctx); err != nil {
			t.Errorf("Probe = %v, want nil", err)
		}
		p.probe = p.hang
		for range 3 {
			want(t, c, "half", nil)
		}
		if n := p.runs.Load(); n != 2 {
			t.Errorf("the program ran %d times, want twice", n)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.Probe(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("Probe = %v, want %v", err, context.Canceled)
		}
		p.probe = returns("", errMissing) // in time
		if err := c.Probe(t.Context()); !errors.Is(err, errMissing) {
			t.Errorf("Probe = %v, want %v", err, errMissing)
		}
		want(t, c, "", errMissing)
	})
}

// TestCompleteProbeWins: over a hurried one, and over one that began before it.
func TestCompleteProbeWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &program{probe: hurry}
		c := NewProbeCache("h", "", p.run)
		for _, slow := range []func(context.Context) (string, error){
			hurry, func(context.Context) (string, error) { time.Sleep(time.Minute); return "old", nil },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			p.probe = slow
			done := make(chan error, 1)
			go func() { done <- c.Probe(ctx) }()
			synctest.Wait()
			time.Sleep(time.Nanosecond)
			p.probe = returns("whole", nil)
			if err := c.Probe(t.Context()); err != nil {
				t.Error(err)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
			want(t, c, "whole", nil)
		}
	})
}

// TestFailedProbeIsRepeated: some seconds later, not at once, and the value returned with the error is kept.
func TestFailedProbeIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &program{probe: returns("half", errMissing)}
		c := NewProbeCache("h", "", p.run)
		want(t, c, "half", errMissing)
		p.probe = returns("whole", nil)
		want(t, c, "half", errMissing)
		time.Sleep(probeRetry + 1)
		want(t, c, "whole", nil)
		if n := p.runs.Load(); n != 2 {
			t.Errorf("the program ran %d times, want twice", n)
		}
	})
}

// TestHangingProgram: Get waits for probePatience after a failed probe.
func TestHangingProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &program{probe: returns("", errMissing)}
		c := NewProbeCache("h", "", p.run)
		want(t, c, "", errMissing)
		p.probe = p.hang
		time.Sleep(probeRetry + 1)
		begin := time.Now()
		for range 3 {
			want(t, c, "", errMissing)
		}
		if took := time.Since(begin); took != 3*probePatience {
			t.Errorf("3 calls of Get took %s, want %s", took, 3*probePatience)
		}
		if n := p.runs.Load(); n != 2 {
			t.Errorf("the program ran %d times, want twice", n)
		}
		time.Sleep(ProbeTimeout)
		want(t, c, "", context.DeadlineExceeded)
		time.Sleep(ProbeTimeout) // it runs once more, at once
	})
}

// TestUnkillable: the defaults are returned for a program that does not exit in time.
func TestUnkillable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		c := NewProbeCache("h", "certain", func(context.Context) (string, error) {
			<-release
			return "late", nil
		})
		begin := time.Now()
		want(t, c, "certain", errdefs.ErrUnavailable)
		if took := time.Since(begin); took != ProbeTimeout+probeGrace {
			t.Errorf("Get took %s, want %s", took, ProbeTimeout+probeGrace)
		}
		close(release)
		synctest.Wait()
		want(t, c, "late", nil)
	})
}

// TestConcurrentProbes: concurrent calls of Get run the program once.
func TestConcurrentProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := &program{probe: func(context.Context) (string, error) { <-release; return "1.0", nil }}
		c := NewProbeCache("h", "", p.run)
		for range 10 {
			go want(t, c, "1.0", nil)
		}
		synctest.Wait()
		close(release)
		synctest.Wait()
		if n := p.runs.Load(); n != 1 {
			t.Errorf("the program ran %d times, want once", n)
		}
	})
}
