package server

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox"
)

func testVersion(t *testing.T) {
	v := must[*cri.VersionResponse](t)(newHarness(t).runtime.Version(t.Context(), &cri.VersionRequest{Version: "0.1.0"}))
	want := [4]string{"0.1.0", "podd", "1.2.3", "v1"}
	if got := [4]string{v.GetVersion(), v.GetRuntimeName(), v.GetRuntimeVersion(), v.GetRuntimeApiVersion()}; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func testRuntimeConfig(t *testing.T) {
	for systemd, want := range map[bool]cri.CgroupDriver{
		false: cri.CgroupDriver_CGROUPFS, true: cri.CgroupDriver_SYSTEMD,
	} {
		h := newHarness(t)
		h.server.cfg.SystemdCgroup = systemd
		r := must[*cri.RuntimeConfigResponse](t)(h.runtime.RuntimeConfig(t.Context(), &cri.RuntimeConfigRequest{}))
		if got := r.GetLinux().GetCgroupDriver(); got != want {
			t.Errorf("systemd %v: driver %v, want %v", systemd, got, want)
		}
	}
}

func testUpdateRuntimeConfig(t *testing.T) {
	for _, tt := range []struct {
		cidr string
		code codes.Code
		call string
	}{
		{"", codes.OK, ""},
		{"10.1.0.0/16", codes.OK, "SetPodCIDR 10.1.0.0/16"},
		{"10.1.0.0/16,fd00:1::/64", codes.OK, "SetPodCIDR 10.1.0.0/16,fd00:1::/64"},
		{"10.1.0.0", codes.InvalidArgument, ""},
		{"10.1.0.0/16,fd00:1::/64,10.2.0.0/16", codes.InvalidArgument, ""},
		{"10.1.0.0/16\n", codes.InvalidArgument, ""},
	} {
		h := newHarness(t)
		_, err := h.runtime.UpdateRuntimeConfig(t.Context(), &cri.UpdateRuntimeConfigRequest{
			RuntimeConfig: &cri.RuntimeConfig{NetworkConfig: &cri.NetworkConfig{PodCidr: tt.cidr}},
		})
		wantCode(t, err, tt.code)
		if got := strings.Join(h.network.log(), ""); got != tt.call {
			t.Errorf("%q: call of the network = %q, want %q", tt.cidr, got, tt.call)
		}
	}
}

func testStatus(t *testing.T) {
	t.Run("ready", func(t *testing.T) {
		r := must[*cri.StatusResponse](t)(newHarness(t).runtime.Status(t.Context(), &cri.StatusRequest{}))
		for _, c := range r.GetStatus().GetConditions() {
			if !c.GetStatus() || c.GetMessage() != "" {
				t.Errorf("condition %v, want true without a message", c)
			}
		}
		if n := len(r.GetStatus().GetConditions()); n != 2 {
			t.Errorf("%d conditions, want RuntimeReady and NetworkReady", n)
		}
		if len(r.GetInfo()) != 0 {
			t.Errorf("info = %v, want none without verbose", r.GetInfo())
		}
	})
	t.Run("not ready", testStatusNotReady)
	t.Run("no space", testStatusNoSpace)
	t.Run("handlers", testStatusHandlers)
	t.Run("verbose", testStatusVerbose)
}

func testStatusNotReady(t *testing.T) {
	h := newHarness(t)
	h.engine.handlers[0].Err = errors.New("runc is not installed")
	h.engine.handlers[1].Err = errors.New("crun is too old")
	h.engine.network = errors.New("no CNI configuration in /etc/cni/net.d")
	r := must[*cri.StatusResponse](t)(h.runtime.Status(t.Context(), &cri.StatusRequest{}))
	var got []string
	for _, c := range r.GetStatus().GetConditions() {
		if c.GetStatus() || c.GetReason() == "" {
			t.Errorf("condition %v, want false with a reason", c)
		}
		got = append(got, c.GetType()+": "+c.GetMessage())
	}
	want := []string{
		"RuntimeReady: runc is not installed", "NetworkReady: no CNI configuration in /etc/cni/net.d",
		"HandlerReady/crun: crun is too old",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, rh := range r.GetRuntimeHandlers() {
		if rh.GetFeatures().GetUserNamespaces() || rh.GetFeatures().GetRecursiveReadOnlyMounts() {
			t.Errorf("handler %q: features %v, want none as it is not ready", rh.GetName(), rh.GetFeatures())
		}
	}
}

func testStatusNoSpace(t *testing.T) {
	h := newHarness(t, func(d *Deps) { d.Space = func() error { return errors.New("/run/podd is full") } })
	r := must[*cri.StatusResponse](t)(h.runtime.Status(t.Context(), &cri.StatusRequest{}))
	want := &cri.RuntimeCondition{Type: cri.RuntimeReady, Reason: "NoSpace", Message: "/run/podd is full"}
	if got := r.GetStatus().GetConditions()[0]; !proto.Equal(got, want) {
		t.Errorf("first condition %v, want %v", got, want)
	}
}

func testStatusHandlers(t *testing.T) {
	r := must[*cri.StatusResponse](t)(newHarness(t).runtime.Status(t.Context(), &cri.StatusRequest{}))
	want := []struct {
		name     string
		features bool
	}{{"", true}, {"runc", true}, {"crun", false}}
	if len(r.GetRuntimeHandlers()) != len(want) {
		t.Fatalf("handlers = %v, want %v", r.GetRuntimeHandlers(), want)
	}
	for i, rh := range r.GetRuntimeHandlers() {
		if rh.GetName() != want[i].name || rh.GetFeatures().GetUserNamespaces() != want[i].features ||
			rh.GetFeatures().GetRecursiveReadOnlyMounts() != want[i].features {
			t.Errorf("handler %d is %v, want %v", i, rh, want[i])
		}
	}
	if f := r.GetFeatures(); !f.GetSupplementalGroupsPolicy() || !f.GetMountOptions() ||
		!f.GetUserNamespacesHostNetwork() {
		t.Errorf("features = %v, want all set", f)
	}
}

func testStatusVerbose(t *testing.T) {
	h := newHarness(t, func(d *Deps) {
		d.Info["broken"] = func() any { return func() {} }
		d.Info["pulls"] = func() any { return []string{"a"} }
	})
	r := must[*cri.StatusResponse](t)(h.runtime.Status(t.Context(), &cri.StatusRequest{Verbose: true}))
	for name, text := range r.GetInfo() {
		if !json.Valid([]byte(text)) {
			t.Errorf("info %s = %s, want JSON", name, text)
		}
	}
	var handlers map[string]struct{ Default, Ready bool }
	if err := json.Unmarshal([]byte(r.GetInfo()["handlers"]), &handlers); err != nil || !handlers["runc"].Default ||
		!handlers["crun"].Ready {
		t.Errorf("handlers = %v, %v, want runc as default and crun ready", handlers, err)
	}
	for name, part := range map[string]string{
		"handlers": "runc 1.5.2", "cni": "10-podd.conflist", "version": "1.2.3", "broken": "error",
		"pulls": `{"items":["a"]}`,
	} {
		if !strings.Contains(r.GetInfo()[name], part) {
			t.Errorf("info %s is %q, want it to have %q", name, r.GetInfo()[name], part)
		}
	}
}

func TestStatusWithoutDefaultHandler(t *testing.T) {
	h := newHarness(t)
	h.engine.handlers = []sandbox.Handler{{Name: "crun"}}
	r := must[*cri.StatusResponse](t)(h.runtime.Status(t.Context(), &cri.StatusRequest{}))
	if c := r.GetStatus().GetConditions()[0]; c.GetType() != cri.RuntimeReady || c.GetStatus() {
		t.Errorf("condition %v, want RuntimeReady false", c)
	}
}
