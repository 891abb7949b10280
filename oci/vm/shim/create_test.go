package shim

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/podd-project/podd/oci/vm/vmm"
	"github.com/podd-project/podd/oci/vm/wire"
)

// TestCreateHasOneDeadline: the time that a guest takes for the streams of a container counts for its creation.
func TestCreateHasOneDeadline(t *testing.T) {
	host, guest := sessions(t, nil)
	taken := make(chan time.Time, 3)
	go func() {
		for {
			c, err := guest.Accept()
			if err != nil {
				return
			}
			taken <- time.Now()
			var h wire.Header
			wire.Answer(c, wire.ReadLine(c, &h))
			_ = c.Close()
		}
	}()
	p := newPod("p", Options{})
	deadlines := deadlineTaker{}
	p.session, p.machine, p.tasks = host, &vmm.Machine{}, &deadlines
	none := filepath.Join(t.TempDir(), "none") // the streams end at once
	err := p.createInGuest(context.Background(), &task.CreateTaskRequest{ID: "c", Stdin: none, Stdout: none, Stderr: none})
	if err != nil {
		t.Fatal(err)
	}
	if len(taken) != 3 {
		t.Fatalf("the guest has taken %d streams, want 3", len(taken))
	}
	if end := (<-taken).Add(createTimeout); deadlines.create.IsZero() || deadlines.create.After(end) {
		t.Errorf("deadline of Create = %s, want one before %s: the first stream was opened before", deadlines.create, end)
	}
}

// deadlineTaker is a guest that keeps the deadline of Create.
type deadlineTaker struct {
	task.TTRPCTaskService
	create time.Time
}

func (d *deadlineTaker) Create(ctx context.Context, _ *task.CreateTaskRequest) (*task.CreateTaskResponse, error) {
	d.create, _ = ctx.Deadline()
	return &task.CreateTaskResponse{}, nil
}

// TestCreateWaitsAsItsCaller: a caller whose time is over does not wait for the container that is being created before
// its own. One after another they do not get in each other's way, also when they fail.
func TestCreateWaitsAsItsCaller(t *testing.T) {
	s := (&Front{ctx: t.Context()}).withAgent()
	r := &task.CreateTaskRequest{ID: "c", Bundle: podOfUnikernels(t).bundle, Options: &anypb.Any{TypeUrl: "unknown"}}
	s.creating <- struct{}{} // as another Create, whose guest does not answer
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := s.create(ctx, r); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Create = %v, want that the deadline is exceeded", err)
	}
	<-s.creating
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := s.create(ctx, r); err == nil || !strings.Contains(err.Error(), "options of type") {
			t.Errorf("Create after the other one = %v, want that its options are refused", err)
		}
	}
}
