package networktest

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/network"
)

func fakeRequest(t *testing.T, id string) network.Request {
	return network.Request{PodID: id, PodName: "web", PodNamespace: "default", Netns: t.TempDir()}
}

func TestFake(t *testing.T) {
	Suite(t, func(t *testing.T) Env {
		return Env{Network: NewFake().Reopen(), Netns: func(t testing.TB) string { return t.TempDir() }}
	})
}

// The engine's tests of failures rely on TestHookFailsBeforeAndAfterTheEffect.
func TestHookFailsBeforeAndAfterTheEffect(t *testing.T) {
	boom := errors.New("boom")
	for _, after := range []bool{false, true} {
		node := NewFake()
		f := node.Reopen()
		hook := func(_ context.Context, _, id string) error {
			if id == "pod1" {
				return boom
			}
			return nil
		}
		if after {
			f.After = hook
		} else {
			f.Before = hook
		}
		if _, err := f.Setup(t.Context(), fakeRequest(t, "pod1")); !errors.Is(err, boom) {
			t.Errorf("after=%v: Setup = %v, want %v", after, err, boom)
		}
		if ids, _ := node.Attachments(); (len(ids) == 1) != after {
			t.Errorf("after=%v: Attachments = %v, want one: %v", after, ids, after)
		}
		if err := f.Teardown(t.Context(), "pod1"); !errors.Is(err, boom) {
			t.Errorf("after=%v: Teardown = %v, want %v", after, err, boom)
		}
		if err := node.Teardown(t.Context(), "pod1"); err != nil {
			t.Errorf("after=%v: Teardown without hooks = %v, want nil", after, err)
		}
		if ids, _ := node.Attachments(); len(ids) != 0 {
			t.Errorf("after=%v: Attachments = %v, want none", after, ids)
		}
	}
}

func TestFakeNotReady(t *testing.T) {
	f := NewFake()
	f.SetReady(errdefs.ErrUnavailable)
	if _, err := f.Setup(t.Context(), fakeRequest(t, "pod1")); !errdefs.IsUnavailable(err) ||
		!errdefs.IsUnavailable(f.Ready()) {
		t.Errorf("Setup = %v, Ready = %v, want both unavailable", err, f.Ready())
	}
	if len(f.Requests()) != 0 {
		t.Errorf("Requests = %v, want none", f.Requests())
	}
}

func TestFakeDialAndPodCIDR(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if conn, err := l.Accept(); err == nil {
			_, _ = io.WriteString(conn, "hello")
			conn.Close()
		}
	}()
	f := NewFake()
	f.Listener = l.Addr().String()
	if _, err := f.Dial(t.Context(), "pod1", 80); !errdefs.IsNotFound(err) {
		t.Errorf("Dial of a pod that is not attached = %v, want not found", err)
	}
	if _, err := f.Setup(t.Context(), fakeRequest(t, "pod1")); err != nil {
		t.Fatal(err)
	}
	conn, err := f.Dial(t.Context(), "pod1", 80)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got, err := io.ReadAll(conn); err != nil || string(got) != "hello" {
		t.Errorf("read %q, %v, want %q", got, err, "hello")
	}
	if err := f.SetPodCIDR(t.Context(), "10.0.0.0/8"); err != nil || f.PodCIDR() != "10.0.0.0/8" {
		t.Errorf("PodCIDR = %q, SetPodCIDR = %v, want %q, nil", f.PodCIDR(), err, "10.0.0.0/8")
	}
}
