package driver

import (
	"testing"

	"github.com/podd-project/podd/oci"
)

func TestWaiters(t *testing.T) {
	var w Waiters
	w.Deliver("c", oci.Exit{Code: 1}) // no call of Wait: dropped
	first, second := w.Join("c"), w.Join("c")
	if first != second {
		t.Error("two calls of Wait for one container do not share a Waiter")
	}
	if e, ok := first.Exit(); ok {
		t.Errorf("Exit before Deliver = %+v, want none", e)
	}
	want := oci.Exit{Code: 7, Known: true}
	w.Deliver("c", want)
	w.Deliver("c", oci.Exit{Code: 8}) // only the first one counts
	<-first.Delivered()
	if e, ok := second.Exit(); !ok || e != want {
		t.Errorf("Exit = %+v, %v, want %+v", e, ok, want)
	}
	w.Leave("c")
	w.Leave("c")
	if len(w.byID) != 0 {
		t.Errorf("%d containers are still waited for, want 0", len(w.byID))
	}
}
