package nri

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/sandbox/lifecycle"
	"github.com/podd-project/podd/sandbox/record"
)

// TestLargeContainer: a container with too large an environment is refused, and is no failure of the plugins: else the
// author of a pod could do without them.
func TestLargeContainer(t *testing.T) {
	n := newNode(t, nil, nil)
	p := n.connect(t, &testPlugin{})
	large := newCreation("large")
	large.Spec.Process.Env = append(large.Spec.Process.Env, "LARGE="+strings.Repeat("x", 4<<20))
	if _, err := n.Create(t.Context(), large); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("Create = %v, want an invalid argument that names the sizes", err)
	}
	if _, err := n.Create(t.Context(), newCreation("small")); err != nil {
		t.Errorf("Create of the next container = %v, want nil", err)
	}
	p.awaitTold(t, "CreateContainer small")
}

// TestLargeContainerBefore: a container that was created while there was no plugin, and is too large for a message,
// neither keeps plugins from connecting nor disconnects them with its events.
func TestLargeContainerBefore(t *testing.T) {
	n := newNode(t, nil, nil)
	pod := newPod("p1")
	large := newCreation("large")
	large.Container.Config.Annotations = map[string]string{"a": strings.Repeat("x", 4<<20)}
	if err := n.RunPod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Create(t.Context(), large); err != nil {
		t.Fatalf("Create without plugins = %v, want nil", err)
	}
	one := large.Container
	one.Status.State = record.ContainerCreated
	n.engine.put(one)
	n.PostContainer(lifecycle.Created, one)
	p := n.connect(t, &testPlugin{})
	if err := n.Start(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	// As the error of a runtime that quotes a file of the image.
	one.Status.State, one.Status.Message = record.ContainerExited, "no such file: \xff"
	n.PostContainer(lifecycle.Stopped, one)
	p.awaitTold(t, "sync p1", "sync large", "StartContainer large", "StopContainer large")
	if got := p.seen["sync large"]; got.GetName() != "main" || len(got.GetAnnotations()) > 0 {
		t.Errorf("the plugin was told of %.100v, want the name, without annotations", got)
	}
}
