package lifecycle

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestWithin(t *testing.T) {
	errExcept := errors.New("except")
	for _, c := range []struct {
		name string
		end  func(caller, parent context.CancelCauseFunc, l Lifetime)
		want error
	}{
		{"goes on without its caller", func(caller, _ context.CancelCauseFunc, _ Lifetime) { caller(errEnd) }, nil},
		{"ends with the lifetime", func(_, _ context.CancelCauseFunc, l Lifetime) { l.End(errEnd) }, errEnd},
		{"ends with the parent", func(_, parent context.CancelCauseFunc, _ Lifetime) { parent(errEnd) }, errEnd},
		{"the first cause counts", func(_, _ context.CancelCauseFunc, l Lifetime) {
			l.End(errEnd)
			l.End(errors.New("second"))
		}, errEnd},
		{"goes on after the exception", func(_, _ context.CancelCauseFunc, l Lifetime) { l.End(errExcept) }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				type key struct{}
				parent, endParent := context.WithCancelCause(t.Context())
				caller, endCaller := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
				l := NewLifetime(parent)
				ctx, cancel := l.WithinExcept(caller, errExcept)
				defer cancel(nil)
				c.end(endCaller, endParent, l)
				synctest.Wait()
				if cause := context.Cause(ctx); !errors.Is(cause, c.want) {
					t.Errorf("cause = %v, want %v", cause, c.want)
				}
				if v := ctx.Value(key{}); v != "value" {
					t.Errorf("Value = %v, want the caller's", v)
				}
				l.End(nil)
				endParent(nil)
				endCaller(nil)
			})
		})
	}
}

func TestUndoOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err := Undo(ended(t), time.Minute, func(ctx context.Context) error {
			<-ctx.Done()
			return WithCause(ctx, errEnd)
		})
		if took := time.Since(began); took != time.Minute || !errors.Is(err, errEnd) ||
			!errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "teardown took longer than 1m0s") {
			t.Errorf("Undo = %v after %v, want the error and its cause after a minute", err, took)
		}
	})
}

func TestWithCause(t *testing.T) {
	t.Parallel()
	other := errors.New("other")
	for _, c := range []struct {
		name string
		ctx  context.Context
		err  error
		want []error
	}{
		{"no error", ended(t), nil, nil},
		{"still in time", t.Context(), other, []error{other}},
		{"ended", ended(t), other, []error{errEnd, other}},
		{"is the cause", ended(t), errEnd, []error{errEnd}},
	} {
		err := WithCause(c.ctx, c.err)
		if (err == nil) != (len(c.want) == 0) {
			t.Errorf("%s: WithCause = %v, want %v", c.name, err, c.want)
		}
		for _, want := range c.want {
			if !errors.Is(err, want) || strings.Count(err.Error(), want.Error()) != 1 {
				t.Errorf("%s: WithCause = %v, want %v in it once", c.name, err, want)
			}
		}
	}
}

func TestSleep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !Sleep(t.Context(), time.Second) || time.Since(began) != time.Second {
			t.Errorf("Sleep took %v, want true after a second", time.Since(began))
		}
		if Sleep(ended(t), time.Second) {
			t.Error("Sleep = true after the end, want false")
		}
	})
}
