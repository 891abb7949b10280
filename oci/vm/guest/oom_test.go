package guest

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/cgroups/v3/cgroup2"
	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/hashicorp/yamux"

	"github.com/podd-project/podd/oci/vm/wire"
)

// ended is a task service in which all has ended.
type ended struct{ task.TTRPCTaskService }

func (ended) Create(_ context.Context, r *task.CreateTaskRequest) (*task.CreateTaskResponse, error) {
	if r.GetID() == failing {
		return nil, errFailing
	}
	return &task.CreateTaskResponse{Pid: uint32(os.Getpid())}, nil
}

func (ended) Wait(context.Context, *task.WaitRequest) (*task.WaitResponse, error) {
	return &task.WaitResponse{ExitStatus: 137}, nil
}

func (ended) Delete(context.Context, *task.DeleteRequest) (*task.DeleteResponse, error) {
	return &task.DeleteResponse{}, nil
}

// TestExitAfterOOM: the host has been told of an out-of-memory kill when Wait answers, whether or not containerd's task
// service has published it.
func TestExitAfterOOM(t *testing.T) {
	for _, c := range []struct {
		name, events, exec string
		want               []string
	}{
		{"killed", "low 0\nhigh 0\nmax 7\noom 1\noom_kill 1\noom_group_kill 0\n", "", []string{"c"}},
		{"killed often", "oom 12\noom_kill 12\n", "", []string{"c"}},
		{"not killed", "low 0\nhigh 0\nmax 7\noom 1\noom_kill 0\noom_group_kill 0\n", "", nil},
		{"a command", "oom_kill 1\n", "e", nil},
		{"deleted", "", "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			if c.events != "" {
				if err := os.WriteFile(filepath.Join(root, "memory.events"), []byte(c.events), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var told []string
			s := taskService{
				TTRPCTaskService: ended{}, groups: newGroups(root), shares: newShares(), forget: func() {},
				tellOOM: func(id string) { told = append(told, id) },
			}
			s.groups.dirs["c"] = root
			out, err := s.Wait(t.Context(), &task.WaitRequest{ID: "c", ExecID: c.exec})
			if err != nil || out.GetExitStatus() != 137 {
				t.Errorf("Wait() = %v, %v, want status 137", out, err)
			}
			if !slices.Equal(told, c.want) {
				t.Errorf("the host was told of kills in %q, want %q", told, c.want)
			}
			if _, err := s.Delete(t.Context(), &task.DeleteRequest{ID: "c"}); err != nil || len(s.groups.dirs) != 0 {
				t.Errorf("Delete() = %v, %d cgroups known, want none", err, len(s.groups.dirs))
			}
		})
	}
}

// TestGroupIsNoted: the cgroup of a container is known from its creation on.
func TestGroupIsNoted(t *testing.T) {
	group, err := cgroup2.PidGroupPath(os.Getpid())
	if err != nil {
		t.Skipf("this host has no cgroup v2, as guests have: %v", err)
	}
	s := taskService{TTRPCTaskService: ended{}, groups: newGroups("/groups"), shares: newShares()}
	if _, err := s.Create(t.Context(), &task.CreateTaskRequest{ID: "c"}); err != nil {
		t.Fatal(err)
	}
	if got, want := s.groups.dirs["c"], filepath.Join("/groups", group); got != want {
		t.Errorf("cgroup of the container = %q, want %q", got, want)
	}
}

// TestTellOOM: telling the host returns when the host has answered, however many tell it; one stream is open at a time.
// A host that does not answer is waited for until tellTimeout.
func TestTellOOM(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inGuest, onHost := sessions(t)
		h := &host{session: inGuest, one: make(chan struct{}, 1)}
		var told atomic.Int32
		for _, id := range []string{"a", "a", "a", "b"} {
			go func() { h.tellOOM(id); told.Add(1) }()
		}
		for i := range 2 { // one event for a, one for b
			synctest.Wait()
			if i == 0 && told.Load() > 0 {
				t.Error("tellOOM has not waited for the answer")
			}
			if n := onHost.NumStreams(); n != 1 {
				t.Errorf("%d streams are open, want 1", n)
			}
			before := told.Load()
			answerEvent(t, onHost)
			synctest.Wait()
			if told.Load() == before {
				t.Error("nobody goes on after the answer")
			}
		}
		if n := told.Load(); n != 4 {
			t.Errorf("%d of 4 have told the host", n)
		}
		began := time.Now()
		h.tellOOM("c")
		if took := time.Since(began); took != tellTimeout {
			t.Errorf("tellOOM without an answer took %v, want %v", took, tellTimeout)
		}
	})
}

// sessions returns both ends of a line.
func sessions(t *testing.T) (inGuest, onHost *yamux.Session) {
	t.Helper()
	a, b := net.Pipe()
	inGuest, err := wire.Guest(a, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = inGuest.Close() })
	onHost, err = wire.Host(b, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = onHost.Close() })
	return inGuest, onHost
}

// answerEvent takes one event and answers it, as the host does.
func answerEvent(t *testing.T, onHost *yamux.Session) {
	t.Helper()
	c, err := onHost.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var h wire.Header
	if err := wire.ReadLine(c, &h); err != nil || h.Kind != wire.Event {
		t.Errorf("event = %+v, %v", h, err)
	}
	wire.Answer(c, nil)
	_, _ = io.Copy(io.Discard, c)
}
