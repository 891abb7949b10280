package ocitest

import (
	"context"
	"errors"
	"reflect"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podd-project/podd/oci"
)

func TestFake(t *testing.T) {
	Suite(t, func(t *testing.T) *Harness { return FakeHarness(t) })
}

// TestFakeInBubble uses the fake with a false clock: an hour's container ends at once, on the second.
func TestFakeInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, ctx := NewFake(t.TempDir()), t.Context()
		if _, err := f.Create(ctx, oci.CreateRequest{ID: "a", Spec: FakeSpec("sleep", "3600")}); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if err := f.Start(ctx, "a"); err != nil {
			t.Fatal(err)
		}
		exit, err := f.Wait(ctx, "a")
		if err != nil || exit.Code != 0 || time.Since(begin) != time.Hour || !exit.At.Equal(time.Now()) {
			t.Errorf("Wait = %+v, %v after %s, want code 0 after %s", exit, err, time.Since(begin), time.Hour)
		}
		_, err = f.ExecSync(ctx, oci.ExecRequest{ID: "a", Process: FakeSpec("true").Process})
		if err == nil {
			t.Error("ExecSync in an ended container = nil, want an error")
		}
	})
}

func TestFakeExecTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, ctx := NewFake(t.TempDir()), t.Context()
		if _, err := f.Create(ctx, oci.CreateRequest{ID: "a", Spec: FakeSpec("/pause")}); err != nil {
			t.Fatal(err)
		}
		if err := f.Start(ctx, "a"); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		_, err := f.ExecSync(ctx, oci.ExecRequest{ID: "a", Process: FakeSpec("sleep", "10").Process, Timeout: time.Second})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("ExecSync = %v after %s, want %v after %s", err, time.Since(begin), context.DeadlineExceeded, time.Second)
		}
	})
}

func TestFakeHooks(t *testing.T) {
	boom := errors.New("boom")
	at := ""
	hook := func(when string) func(context.Context, string, string) error {
		return func(_ context.Context, verb, id string) error {
			if at == when+" "+verb+" "+id {
				return boom
			}
			return nil
		}
	}
	f, ctx := NewFake(t.TempDir()), t.Context()
	f.Before, f.After = hook("before"), hook("after")

	at = "before create a"
	_, err := f.Create(ctx, oci.CreateRequest{ID: "a", Spec: FakeSpec("true")})
	if !errors.Is(err, boom) || len(f.IDs()) != 0 {
		t.Errorf("Create failed before = %v, IDs = %v, want %v and none", err, f.IDs(), boom)
	}
	at = "after create a"
	_, err = f.Create(ctx, oci.CreateRequest{ID: "a", Spec: FakeSpec("true")})
	if !errors.Is(err, boom) || len(f.IDs()) != 1 {
		t.Errorf("Create failed after = %v, IDs = %v, want %v and one", err, f.IDs(), boom)
	}
	at = ""
	if err := f.Delete(ctx, "a"); err != nil || len(f.IDs()) != 0 {
		t.Errorf("Delete = %v, IDs = %v, want nil and none", err, f.IDs())
	}
	if want := []string{"create a", "delete a"}; !reflect.DeepEqual(f.Calls(), want) {
		t.Errorf("calls %q, want %q", f.Calls(), want)
	}
}

func TestFakeExit(t *testing.T) {
	f, ctx := NewFake(t.TempDir()), t.Context()
	if _, err := f.Create(ctx, oci.CreateRequest{ID: "a", Spec: FakeSpec("sleep", "100")}); err != nil {
		t.Fatal(err)
	}
	want := oci.Exit{Code: 255, At: time.Unix(1, 0), OOM: true}
	f.Exit("a", want)
	f.Exit("a", oci.Exit{Code: 1}) // only the first counts
	f.Exit("unknown", want)
	if got, err := f.Wait(ctx, "a"); err != nil || got != want {
		t.Errorf("Wait = %+v, %v, want %+v", got, err, want)
	}
	if err := f.Signal(ctx, "a", syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	if req, _, ok := f.Request("a"); !ok || req.ID != "a" {
		t.Errorf("Request = %+v, %v, want that of container a", req, ok)
	}
}
