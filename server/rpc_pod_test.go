package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func testRunPodSandbox(t *testing.T) {
	h := newHarness(t)
	cfg := goodPod()
	r := must[*cri.RunPodSandboxResponse](t)(
		h.runtime.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: cfg, RuntimeHandler: "crun"}),
	)
	if r.GetPodSandboxId() != "newpod" {
		t.Errorf("id = %q, want %q", r.GetPodSandboxId(), "newpod")
	}
	if got := h.engine.podConfig; !proto.Equal(got, cfg) {
		t.Errorf("engine got %v, want %v", got, cfg)
	}
	if got, want := h.engine.log(), []string{"RunPod crun"}; !slices.Equal(got, want) {
		t.Errorf("calls = %q, want %q", got, want)
	}
	h.engine.fail["RunPod"] = fmt.Errorf("%w: no runtime handler", errdefs.ErrInvalidArgument)
	_, err := h.runtime.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: cfg})
	wantCode(t, err, codes.InvalidArgument, "no runtime handler")
}

// idempotent tests a call that must succeed for what does not exist.
func idempotent(t *testing.T, call, known string, do func(h *harness, ctx context.Context, id string) error) {
	for _, tt := range []struct {
		name, id string
		fail     error
		code     codes.Code
		called   bool
	}{
		{"existing", known, nil, codes.OK, true},
		{"by prefix", known[:4], nil, codes.OK, true},
		{"absent", "0123", nil, codes.OK, false},
		{"a UUID", "3fa85f64-5717-4562-b3fc-2c963f66afa6", nil, codes.OK, false},
		{"ambiguous", known[:2], nil, codes.InvalidArgument, false},
		{"empty", "", nil, codes.InvalidArgument, false},
		{"with a slash", "../" + known, nil, codes.InvalidArgument, false},
		{"too long", strings.Repeat("a", 1000), nil, codes.InvalidArgument, false},
		{"failing", known, errors.New("boom"), codes.Unknown, true},
		{"failing over something absent", known, fmt.Errorf("runc: %w", errdefs.ErrNotFound), codes.NotFound, true},
		{"timing out", known, fmt.Errorf("still alive: %w", context.DeadlineExceeded), codes.DeadlineExceeded, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t)
			h.engine.fail[call] = tt.fail
			wantCode(t, do(h, t.Context(), tt.id), tt.code)
			calls := strings.Join(h.engine.log(), "|")
			if called := strings.HasPrefix(calls, call+" "+known); called != tt.called {
				t.Errorf("calls = %q, want one of %s with the full id: %v", calls, call, tt.called)
			}
		})
	}
}

func testStopPodSandbox(t *testing.T) {
	idempotent(t, "StopPod", podID, func(h *harness, ctx context.Context, id string) error {
		_, err := h.runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: id})
		return err
	})
}

func testRemovePodSandbox(t *testing.T) {
	idempotent(t, "RemovePod", podID, func(h *harness, ctx context.Context, id string) error {
		_, err := h.runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id})
		return err
	})
	t.Run("removed by another call meanwhile", func(t *testing.T) {
		h := newHarness(t)
		h.engine.fail["RemovePod"] = errdefs.ErrNotFound
		h.engine.on = func(string, ...any) { h.engine.pods = nil }
		_, err := h.runtime.RemovePodSandbox(t.Context(), &cri.RemovePodSandboxRequest{PodSandboxId: podID})
		wantCode(t, err, codes.OK)
	})
}

func testPodSandboxStatus(t *testing.T) {
	t.Run("ready", testPodStatusFields)
	t.Run("host network", func(t *testing.T) {
		h := newHarness(t)
		r := must[*cri.PodSandboxStatusResponse](t)(
			h.runtime.PodSandboxStatus(t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: stoppedID}),
		)
		if r.GetStatus().GetNetwork() == nil || r.GetStatus().GetNetwork().GetIp() != "" {
			t.Errorf("network %v, want an empty message", r.GetStatus().GetNetwork())
		}
		if r.GetStatus().GetState() != cri.PodSandboxState_SANDBOX_NOTREADY {
			t.Errorf("state = %v, want not ready", r.GetStatus().GetState())
		}
		if r.GetTimestamp() == 0 || len(r.GetContainersStatuses()) != 0 {
			t.Errorf("timestamp %d, containers %v, want a timestamp and no containers",
				r.GetTimestamp(), r.GetContainersStatuses())
		}
	})
	t.Run("without linux config", func(t *testing.T) {
		h := newHarness(t)
		h.engine.pods[0].Config.Linux = nil
		r := must[*cri.PodSandboxStatusResponse](t)(
			h.runtime.PodSandboxStatus(t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: podID}),
		)
		if r.GetStatus().GetLinux().GetNamespaces().GetOptions() == nil {
			t.Error("namespace options = nil, want an empty message")
		}
	})
	t.Run("verbose", func(t *testing.T) {
		h := newHarness(t)
		r := must[*cri.PodSandboxStatusResponse](t)(h.runtime.PodSandboxStatus(
			t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: podID, Verbose: true},
		))
		var info struct {
			Netns       string
			Config      map[string]any
			Pid         int
			RuntimeSpec *specs.Spec
		}
		if err := json.Unmarshal([]byte(r.GetInfo()["info"]), &info); err != nil {
			t.Fatal(err)
		}
		if info.Netns != "/run/podd/netns/"+podID || info.Config["hostname"] != "web-0" {
			t.Errorf("info = %v, want netns of %s and hostname web-0", info, podID)
		}
		if info.Pid != 4711 { // the pod has no infra container
			t.Errorf("pid = %d, want that of the running container", info.Pid)
		}
		if s := info.RuntimeSpec; s == nil || s.Process.Env != nil {
			t.Errorf("runtimeSpec = %+v, want it without the environment", s)
		}
	})
	t.Run("absent", func(t *testing.T) {
		_, err := newHarness(t).runtime.PodSandboxStatus(t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: "ffff"})
		wantCode(t, err, codes.NotFound)
	})
}

func testPodStatusFields(t *testing.T) {
	h := newHarness(t)
	before := time.Now().UnixNano()
	r := must[*cri.PodSandboxStatusResponse](t)(
		h.runtime.PodSandboxStatus(t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: podID}),
	)
	if ts := r.GetTimestamp(); ts < before || ts > time.Now().UnixNano() {
		t.Errorf("timestamp = %d, want one between %d and now", ts, before)
	}
	r.Timestamp = 0
	sent := h.engine.pods[0].Config
	want := &cri.PodSandboxStatusResponse{Status: &cri.PodSandboxStatus{
		Id: podID, Metadata: sent.GetMetadata(), State: cri.PodSandboxState_SANDBOX_READY, CreatedAt: created.UnixNano(),
		Network: &cri.PodSandboxNetworkStatus{Ip: "10.1.0.5", AdditionalIps: []*cri.PodIP{{Ip: "fd00::5"}}},
		Linux: &cri.LinuxPodSandboxStatus{Namespaces: &cri.Namespace{
			Options: sent.GetLinux().GetSecurityContext().GetNamespaceOptions(),
		}},
		Labels: sent.GetLabels(), Annotations: sent.GetAnnotations(), RuntimeHandler: "runc",
	}, ContainersStatuses: []*cri.ContainerStatus{runningStatus(), exitedStatus()}}
	if !proto.Equal(r, want) {
		t.Errorf("got  %v\nwant %v", r, want)
	}
}

func testListPodSandbox(t *testing.T) {
	h := newHarness(t)
	list := func(t *testing.T, f *cri.PodSandboxFilter) []*cri.PodSandbox {
		return must[*cri.ListPodSandboxResponse](t)(
			h.runtime.ListPodSandbox(t.Context(), &cri.ListPodSandboxRequest{Filter: f}),
		).GetItems()
	}
	podFilters(t, h, list)
	want := &cri.PodSandbox{
		Id: podID, Metadata: goodPod().GetMetadata(), State: cri.PodSandboxState_SANDBOX_READY, CreatedAt: created.UnixNano(),
		Labels: map[string]string{"app": "web", "id": podID}, Annotations: goodPod().GetAnnotations(), RuntimeHandler: "runc",
	}
	if got := list(t, nil)[0]; !proto.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	_, err := h.runtime.ListPodSandbox(
		t.Context(),
		&cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{State: &cri.PodSandboxStateValue{State: 7}}},
	)
	wantCode(t, err, codes.InvalidArgument, "filter.state.state")
}

func podFilters(t *testing.T, h *harness, list func(*testing.T, *cri.PodSandboxFilter) []*cri.PodSandbox) {
	ready := &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY}
	notReady := &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_NOTREADY}
	for name, tt := range map[string]struct {
		filter *cri.PodSandboxFilter
		want   []string
	}{
		"none":             {nil, []string{podID, stoppedID}},
		"empty":            {&cri.PodSandboxFilter{}, []string{podID, stoppedID}},
		"id":               {&cri.PodSandboxFilter{Id: podID}, []string{podID}},
		"prefix":           {&cri.PodSandboxFilter{Id: "aab"}, []string{stoppedID}},
		"shared prefix":    {&cri.PodSandboxFilter{Id: "aa"}, []string{podID, stoppedID}},
		"unknown id":       {&cri.PodSandboxFilter{Id: "ff"}, nil},
		"ready":            {&cri.PodSandboxFilter{State: ready}, []string{podID}},
		"not ready":        {&cri.PodSandboxFilter{State: notReady}, []string{stoppedID}},
		"label":            {&cri.PodSandboxFilter{LabelSelector: map[string]string{"id": podID}}, []string{podID}},
		"labels are ANDed": {&cri.PodSandboxFilter{LabelSelector: map[string]string{"id": podID, "app": "db"}}, nil},
		"absent label":     {&cri.PodSandboxFilter{LabelSelector: map[string]string{"absent": ""}}, nil},
		"all together": {
			&cri.PodSandboxFilter{Id: "aaaa", State: ready, LabelSelector: map[string]string{"app": "web"}},
			[]string{podID},
		},
		"contradicting each": {&cri.PodSandboxFilter{Id: "aaaa", State: notReady}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, p := range list(t, tt.filter) {
				got = append(got, p.GetId())
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// receive reads a stream to its end and flattens its messages.
func receive[M, T any](t *testing.T, stream interface{ Recv() (M, error) }, items func(M) []T) (all []T, messages int) {
	t.Helper()
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all, messages
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(items(m)) == 0 {
			t.Error("message has no items, want at least one")
		}
		all, messages = append(all, items(m)...), messages+1
	}
}

func testStreamPodSandboxes(t *testing.T) {
	h := newHarness(t)
	stream := func(t *testing.T, f *cri.PodSandboxFilter) []*cri.PodSandbox {
		s, err := h.runtime.StreamPodSandboxes(t.Context(), &cri.StreamPodSandboxesRequest{Filter: f})
		if err != nil {
			t.Fatal(err)
		}
		all, _ := receive(t, s, (*cri.StreamPodSandboxesResponse).GetPodSandboxes)
		return all
	}
	podFilters(t, h, stream)
	s, err := h.runtime.StreamPodSandboxes(
		t.Context(), &cri.StreamPodSandboxesRequest{Filter: &cri.PodSandboxFilter{Id: "a/b"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Recv()
	wantCode(t, err, codes.InvalidArgument, "filter.id")
}

func testPortForward(t *testing.T) {
	h := newHarness(t)
	r := must[*cri.PortForwardResponse](t)(h.runtime.PortForward(
		t.Context(), &cri.PortForwardRequest{PodSandboxId: podID[:4], Port: []int32{80, 443}},
	))
	if r.GetUrl() != "http://ports" || h.streamer.ports.GetPodSandboxId() != podID ||
		!slices.Equal(h.streamer.ports.GetPort(), []int32{80, 443}) {
		t.Errorf("url = %q, streamer got %v, want http://ports, pod %s, ports 80 and 443",
			r.GetUrl(), h.streamer.ports, podID)
	}
	for name, tt := range map[string]struct {
		req  *cri.PortForwardRequest
		code codes.Code
	}{
		"absent":     {&cri.PortForwardRequest{PodSandboxId: "ffff"}, codes.NotFound},
		"not ready":  {&cri.PortForwardRequest{PodSandboxId: stoppedID}, codes.FailedPrecondition},
		"port 0":     {&cri.PortForwardRequest{PodSandboxId: podID, Port: []int32{0}}, codes.InvalidArgument},
		"port 65536": {&cri.PortForwardRequest{PodSandboxId: podID, Port: []int32{65536}}, codes.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := h.runtime.PortForward(t.Context(), tt.req)
			wantCode(t, err, tt.code)
		})
	}
}
