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

// program is what is asked, and how often it was.
type program struct {
	asked atomic.Int64
	say   func(context.Context) (string, error)
}

func (p *program) ask(ctx context.Context) (string, error) {
	p.asked.Add(1)
	return p.say(ctx)
}

func (p *program) hang(ctx context.Context) (string, error) {
	<-ctx.Done()
	return "", context.Cause(ctx)
}

func says(s string, err error) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return s, err }
}

func want(t *testing.T, c *ProbeCache[string], value string, err error) {
	t.Helper()
	if got, gotErr := c.Get(); got != value || !errors.Is(gotErr, err) {
		t.Errorf("got %q, %v, want %q, %v", got, gotErr, value, err)
	}
}

func TestAGoodAnswerIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &program{say: says("1.0", nil)}
		c := NewProbeCache("h", "", p.ask)
		want(t, c, "1.0", nil)
		time.Sleep(24 * time.Hour)
		want(t, c, "1.0", nil)
		if n := p.asked.Load(); n != 1 {
			t.Errorf("asked %d times", n)
		}
		p.say = says("2.0", nil)
		if err := c.Probe(t.Context()); err != nil {
			t.Error(err)
		}
		want(t, c, "2.0", nil)
	})
}

// TestABadAnswerIsAskedAgain: some seconds later, not at once, and what came with the error is kept.
func TestABadAnswerIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &program{say: says("half", errMissing)}
		c := NewProbeCache("h", "", p.ask)
		want(t, c, "half", errMissing)
		p.say = says("whole", nil)
		want(t, c, "half", errMissing)
		time.Sleep(probeRetry + 1)
		want(t, c, "whole", nil)
		if n := p.asked.Load(); n != 2 {
			t.Errorf("asked %d times", n)
		}
	})
}

// TestAHangingProgram holds up nobody for long: after a bad answer for a moment, before any for its time.
func TestAHangingProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &program{say: says("", errMissing)}
		c := NewProbeCache("h", "", p.ask)
		want(t, c, "", errMissing)
		p.say = p.hang
		time.Sleep(probeRetry + 1)
		begin := time.Now()
		for range 3 {
			want(t, c, "", errMissing)
		}
		if took := time.Since(begin); took != 3*probePatience {
			t.Errorf("took %s", took)
		}
		if n := p.asked.Load(); n != 2 {
			t.Errorf("asked %d times", n)
		}
		time.Sleep(ProbeTimeout)
		want(t, c, "", context.DeadlineExceeded)
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
			t.Errorf("took %s", took)
		}
		close(release)
		synctest.Wait()
		want(t, c, "late", nil)
	})
}

// TestManyAskAtOnce: the program is asked once.
func TestManyAskAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := &program{say: func(context.Context) (string, error) { <-release; return "1.0", nil }}
		c := NewProbeCache("h", "", p.ask)
		for range 10 {
			go want(t, c, "1.0", nil)
		}
		synctest.Wait()
		close(release)
		synctest.Wait()
		if n := p.asked.Load(); n != 1 {
			t.Errorf("asked %d times", n)
		}
	})
}
