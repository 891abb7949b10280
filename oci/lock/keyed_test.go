package lock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestKeyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Keyed
		unlock, err := l.Lock(t.Context(), "a")
		if err != nil {
			t.Fatalf("Lock: %v, want none", err)
		}
		other, err := l.Lock(t.Context(), "b")
		if err != nil {
			t.Fatalf("Lock of another key: %v, want none", err)
		}
		other()
		why := errors.New("why")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(why) })
		if _, err := l.Lock(ctx, "a"); !errors.Is(err, why) {
			t.Errorf("Lock of a held key: %v, want %v", err, why)
		}
		time.AfterFunc(time.Minute, unlock)
		begin := time.Now()
		again, err := l.Lock(t.Context(), "a")
		if waited := time.Since(begin); err != nil || waited != time.Minute {
			t.Errorf("Lock returned after %s, %v, want %s, none", waited, err, time.Minute)
		}
		again()
		synctest.Wait() // the first holder frees the lock before it forgets the key
		if len(l.locks) != 0 {
			t.Errorf("held after all were unlocked = %v, want none", l.locks)
		}
	})
}

// TestOrder: the lock is given to its waiters in the order in which they came.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Keyed
		unlock, err := l.Lock(t.Context(), "a")
		if err != nil {
			t.Fatalf("Lock: %v, want none", err)
		}
		got := make(chan int, 10)
		for i := range cap(got) {
			go func() {
				unlock, err := l.Lock(t.Context(), "a")
				if err != nil {
					t.Errorf("Lock of waiter %d: %v, want none", i, err)
					return
				}
				got <- i
				unlock()
			}()
			synctest.Wait()
		}
		unlock()
		for want := range cap(got) {
			if i := <-got; i != want {
				t.Errorf("waiter %d has the lock, want %d", i, want)
			}
		}
	})
}
