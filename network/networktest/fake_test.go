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

func fakeRequest(id string) network.Request {
	return network.Request{PodID: id, PodName: "web", PodNamespace: "default", Netns: "/run/netns/" + id}
}

// TestHookFailsBeforeAndAfterTheEffect is what the engine's fault tests stand on.
func TestHookFailsBeforeAndAfterTheEffect(t *testing.T) {
	boom := errors.New("boom")
	for _, done := range []bool{false, true} {
		f := &Fake{}
		fail := true
		f.Hook = func(_ context.Context, m Moment) error {
			if fail && m.Done == done && m.PodID == "pod1" {
				return boom
			}
			return nil
		}
		if _, err := f.Setup(t.Context(), fakeRequest("pod1")); !errors.Is(err, boom) {
			t.Errorf("Setup = %v", err)
		}
		if ids, _ := f.Attachments(); (len(ids) == 1) != done {
			t.Errorf("done=%v: attachments %v", done, ids)
		}
		if err := f.Teardown(t.Context(), "pod1"); !errors.Is(err, boom) {
			t.Errorf("Teardown = %v", err)
		}
		fail = false
		if err := f.Teardown(t.Context(), "pod1"); err != nil {
			t.Error(err)
		}
		if ids, _ := f.Attachments(); len(ids) != 0 {
			t.Errorf("attachments %v", ids)
		}
	}
}

func TestFakeNotReady(t *testing.T) {
	f := &Fake{}
	f.SetReady(errdefs.ErrUnavailable)
	if _, err := f.Setup(t.Context(), fakeRequest("pod1")); !errdefs.IsUnavailable(err) || !errdefs.IsUnavailable(f.Ready()) {
		t.Errorf("Setup = %v", err)
	}
	if len(f.Requests()) != 0 {
		t.Errorf("requests %v", f.Requests())
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
	f := &Fake{Listener: l.Addr().String()}
	if _, err := f.Dial(t.Context(), "pod1", 80); !errdefs.IsNotFound(err) {
		t.Errorf("Dial = %v", err)
	}
	if _, err := f.Setup(t.Context(), fakeRequest("pod1")); err != nil {
		t.Fatal(err)
	}
	conn, err := f.Dial(t.Context(), "pod1", 80)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got, err := io.ReadAll(conn); err != nil || string(got) != "hello" {
		t.Errorf("read %q, %v", got, err)
	}
	if err := f.SetPodCIDR(t.Context(), "10.0.0.0/8"); err != nil || f.PodCIDR() != "10.0.0.0/8" {
		t.Errorf("%q, %v", f.PodCIDR(), err)
	}
}
