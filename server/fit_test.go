package server

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/budget"
	"github.com/podd-project/podd/sandbox/record"
	"github.com/podd-project/podd/sandbox/usage"
)

// enlarge gives the node pods and containers of an older podd, as many and as large as they could be.
func enlarge(h *harness, pods, annotations int, change func(*cri.PodSandboxConfig, *cri.ContainerConfig)) {
	large := map[string]string{"io.kubernetes.a": strings.Repeat("x", annotations), "io.kubernetes.container.hash": "1"}
	h.engine.pods, h.engine.containers = nil, nil
	h.engine.podUsage, h.engine.containerUsage = map[string]usage.Pod{}, map[string]usage.Container{}
	for i := range pods {
		p := podRecord(fmt.Sprintf("%064d", i))
		c := runningContainer()
		one := *c.Container
		one.ID, one.PodID = fmt.Sprintf("c%063d", i), p.ID
		one.Config, p.Config.Annotations = goodContainer(), large
		one.Config.Annotations = large
		change(p.Config, one.Config)
		c.Container, c.Pod.Pod = &one, p
		h.engine.pods = append(h.engine.pods, record.PodView{Pod: p, Status: record.PodStatus{State: record.PodReady}})
		h.engine.containers = append(h.engine.containers, c)
		h.engine.containerUsage[c.ID] = usage.Container{}
		h.engine.podUsage[p.ID] = usage.Pod{Containers: h.engine.containerUsage}
	}
}

// TestAnswersFitAMessage: no unary call fails because of what is stored, and no item is missing.
func TestAnswersFitAMessage(t *testing.T) {
	for name, change := range map[string]func(*cri.PodSandboxConfig, *cri.ContainerConfig){
		"annotations": func(*cri.PodSandboxConfig, *cri.ContainerConfig) {},
		"labels": func(p *cri.PodSandboxConfig, c *cri.ContainerConfig) {
			p.Labels, p.Annotations, c.Labels, c.Annotations = p.Annotations, nil, c.Annotations, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			const n = 66
			enlarge(h, n, 250<<10, change)
			ctx, rt := t.Context(), h.runtime
			pods := must[*cri.ListPodSandboxResponse](t)(rt.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{}))
			podStats := must[*cri.ListPodSandboxStatsResponse](t)(
				rt.ListPodSandboxStats(ctx, &cri.ListPodSandboxStatsRequest{}))
			containers := must[*cri.ListContainersResponse](t)(rt.ListContainers(ctx, &cri.ListContainersRequest{}))
			stats := must[*cri.ListContainerStatsResponse](t)(
				rt.ListContainerStats(ctx, &cri.ListContainerStatsRequest{}))
			for call, items := range map[string]int{
				"ListPodSandbox": len(pods.GetItems()), "ListPodSandboxStats": len(podStats.GetStats()),
				"ListContainers": len(containers.GetContainers()), "ListContainerStats": len(stats.GetStats()),
			} {
				if items != n {
					t.Errorf("%s: %d items, want %d", call, items, n)
				}
			}
			for i := range n {
				p, c := pods.GetItems()[i], containers.GetContainers()[i]
				if p.GetLabels()["io.kubernetes.container.hash"]+p.GetAnnotations()["io.kubernetes.container.hash"] != "1" ||
					c.GetLabels()["io.kubernetes.container.hash"]+c.GetAnnotations()["io.kubernetes.container.hash"] != "1" {
					t.Errorf("pod %d or its container lacks the kubelet's entry", i)
				}
			}
			if log := h.log.String(); !strings.Contains(log, "left out its largest parts") {
				t.Errorf("log = %.500s, want a line that says what is left out", log)
			}
		})
	}
}

// TestStatusOfLargePodFits: the status of a pod, with those of its containers, fits, also in events.
func TestStatusOfLargePodFits(t *testing.T) {
	h := newHarness(t)
	enlarge(h, 17, 1_000_000, func(*cri.PodSandboxConfig, *cri.ContainerConfig) {})
	pod := h.engine.pods[0]
	for i := range h.engine.containers {
		h.engine.containers[i].PodID = pod.ID
	}
	resp := must[*cri.PodSandboxStatusResponse](t)(
		h.runtime.PodSandboxStatus(t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: pod.ID, Verbose: true}))
	whole := 0
	for _, s := range resp.GetContainersStatuses() {
		if len(s.GetAnnotations()) == 2 {
			whole++
		}
	}
	if len(resp.GetContainersStatuses()) != 17 || whole < 10 {
		t.Errorf("%d statuses, %d of them with annotations; want 17 and most", len(resp.GetContainersStatuses()), whole)
	}
	event := h.server.event(t.Context(), Event{ID: pod.ID, Pod: pod, Containers: h.engine.containers})
	sent := &sizedStream{}
	if err := (fittingStream{sent, h.server, newCall("/GetContainerEvents", nil)}).SendMsg(event); err != nil ||
		sent.size == 0 || sent.size > maxMessage {
		t.Errorf("sent an event of %d bytes, %v; want at most %d", sent.size, err, maxMessage)
	}
}

// sizedStream notes the size of a message.
type sizedStream struct {
	grpc.ServerStream
	size int
}

func (s *sizedStream) SendMsg(m any) error {
	s.size = proto.Size(m.(proto.Message))
	return nil
}

// TestRequestsHaveASize: whatever field of whatever request is too large, also one that a later CRI adds, the request
// is refused before podd keeps anything of it.
func TestRequestsHaveASize(t *testing.T) {
	s := newHarness(t).server
	reached := func(context.Context, any) (any, error) {
		t.Error("the call was made, want that it is refused")
		return nil, nil
	}
	fields, seen := 0, map[protoreflect.FullName]bool{}
	for _, request := range requests(t) {
		for name, m := range overfilled(request.New(), seen) {
			fields++
			_, err := s.interceptUnary(t.Context(), m.Interface(), &grpc.UnaryServerInfo{FullMethod: "/Test"}, reached)
			wantCode(t, err, codes.InvalidArgument)
			if t.Failed() {
				t.Fatalf("%s: %s can have any size", request.Descriptor().FullName(), name)
			}
		}
	}
	if fields < 100 {
		t.Errorf("tried %d fields, want all", fields)
	}
}

// overfilled yields the message with one of its fields, or of those of the messages in it, larger than podd allows, but
// each field once.
func overfilled(
	root protoreflect.Message, seen map[protoreflect.FullName]bool,
) iter.Seq2[string, protoreflect.Message] {
	return func(yield func(string, protoreflect.Message) bool) {
		fields := root.Descriptor().Fields()
		for i := range fields.Len() {
			fd := fields.Get(i)
			name := string(fd.FullName())
			if seen[fd.FullName()] {
				continue
			}
			seen[fd.FullName()] = true
			if overfill(root, fd) && !yield(name, root) {
				return
			}
			root.Clear(fd)
			if fd.Message() == nil || fd.IsMap() {
				continue
			}
			var inner protoreflect.Message
			if fd.IsList() {
				inner = root.Mutable(fd).List().AppendMutable().Message()
			} else {
				inner = root.Mutable(fd).Message()
			}
			for name := range overfilled(inner, seen) {
				if !yield(name, root) {
					return
				}
			}
			root.Clear(fd)
		}
	}
}

// overfill makes a field too large, if it can have any size. Lists of messages are too large with one large message;
// budget.TestCost has those of many.
func overfill(m protoreflect.Message, fd protoreflect.FieldDescriptor) bool {
	large := strings.Repeat("x", budget.MaxRequest)
	switch {
	case fd.IsMap():
		values := m.Mutable(fd).Map()
		values.Set(protoreflect.ValueOfString(large).MapKey(), values.NewValue())
	case fd.IsList() && fd.Message() != nil:
		return false
	case fd.IsList() && fd.Kind() == protoreflect.StringKind:
		m.Mutable(fd).List().Append(protoreflect.ValueOfString(large))
	case fd.IsList():
		list := m.Mutable(fd).List()
		for range budget.MaxRequest/16 + 1 {
			list.Append(list.NewElement())
		}
	case fd.Kind() == protoreflect.StringKind:
		m.Set(fd, protoreflect.ValueOfString(large))
	case fd.Kind() == protoreflect.BytesKind:
		m.Set(fd, protoreflect.ValueOfBytes([]byte(large)))
	default:
		return false
	}
	return true
}

// TestHugeRequestIsNotReceived: gRPC refuses it before it is in memory.
func TestHugeRequestIsNotReceived(t *testing.T) {
	h := newHarness(t)
	c := goodContainer()
	for range 15 {
		c.Args = append(c.Args, strings.Repeat("<", 1<<20))
	}
	_, err := h.runtime.CreateContainer(t.Context(), &cri.CreateContainerRequest{PodSandboxId: podID, Config: c})
	wantCode(t, err, codes.ResourceExhausted, "received message larger than max")
	if calls := h.engine.log(); len(calls) != 0 {
		t.Errorf("calls of the engine: %.200v, want none", calls)
	}
}
