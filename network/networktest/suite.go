package networktest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/network"
)

// Env is one network to check.
type Env struct {
	Network Network
	// Netns makes a pinned network namespace that is gone after the test, and returns its path.
	Netns func(t testing.TB) string
}

// Request is a valid request for the pod with this id.
func (e Env) Request(t testing.TB, id string) network.Request {
	return network.Request{
		PodID: id, PodName: "web-" + id, PodNamespace: "default", PodUID: "uid-" + id, Netns: e.Netns(t),
	}
}

// Suite checks how a pod network behaves, whatever implements it.
func Suite(t *testing.T, newEnv func(t *testing.T) Env) {
	for name, check := range map[string]func(t *testing.T, e Env){
		"attach and detach":              attachAndDetach,
		"a pod is attached once":         attachTwice,
		"detaching is idempotent":        detachTwice,
		"bad requests leave nothing":     badRequests,
		"a cancelled call can be undone": cancelled,
		"many pods at once":              manyPods,
		"collect pods not in use":        collect,
		"collect during an attachment":   collectDuring,
		"no network namespace":           noNetns,
		"leases of an attached pod":      leases,
		"abandon an unattached pod":      abandonUnknown,
		"dial of no pod":                 dialNobody,
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			if err := e.Network.Ready(); err != nil {
				t.Fatalf("not ready: %v", err)
			}
			check(t, e)
			attached(t, e) // nothing may be left
		})
	}
}

// attached fails the test unless exactly these pods are attached.
func attached(t *testing.T, e Env, want ...string) {
	t.Helper()
	got, err := e.Network.Attachments()
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("attachments are %q, %v, want %q", got, err, want)
	}
}

func detach(t *testing.T, e Env, id string) {
	t.Helper()
	if err := e.Network.Teardown(context.WithoutCancel(t.Context()), id); err != nil {
		t.Errorf("Teardown of %s = %v, want nil", id, err)
	}
}

func attachAndDetach(t *testing.T, e Env) {
	result, err := e.Network.Setup(t.Context(), e.Request(t, "pod1"))
	if err != nil {
		t.Fatal(err)
	}
	if len(result.IPs) == 0 || !result.IPs[0].IsValid() || result.Interface != "eth0" {
		t.Errorf("Setup = %+v, want a valid address on eth0", result)
	}
	attached(t, e, "pod1")
	detach(t, e, "pod1")
}

func attachTwice(t *testing.T, e Env) {
	r := e.Request(t, "pod1")
	if _, err := e.Network.Setup(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Network.Setup(t.Context(), r); !errdefs.IsAlreadyExists(err) {
		t.Errorf("second Setup = %v, want already exists", err)
	}
	attached(t, e, "pod1")
	detach(t, e, "pod1")
	// The id is free again.
	if _, err := e.Network.Setup(t.Context(), r); err != nil {
		t.Error(err)
	}
	detach(t, e, "pod1")
}

func detachTwice(t *testing.T, e Env) {
	detach(t, e, "never-seen")
	if _, err := e.Network.Setup(t.Context(), e.Request(t, "pod1")); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		detach(t, e, "pod1")
	}
	if err := e.Network.Teardown(t.Context(), ""); !errdefs.IsInvalidArgument(err) {
		t.Errorf("Teardown of no pod = %v, want an invalid argument", err)
	}
}

func badRequests(t *testing.T, e Env) {
	good := e.Request(t, "pod1")
	port := func(p network.PortMapping) func(*network.Request) {
		return func(r *network.Request) { r.Ports = []network.PortMapping{p} }
	}
	for name, spoil := range map[string]func(*network.Request){
		"no id":                func(r *network.Request) { r.PodID = "" },
		"id is a path":         func(r *network.Request) { r.PodID = "../pod1" },
		"id is hidden":         func(r *network.Request) { r.PodID = ".pod1" },
		"id too long":          func(r *network.Request) { r.PodID = strings.Repeat("a", 201) },
		"another CNI argument": func(r *network.Request) { r.PodName = "web;K8S_POD_NAMESPACE=kube-system" },
		"equals sign":          func(r *network.Request) { r.PodNamespace = "a=b" },
		"newline":              func(r *network.Request) { r.PodUID = "a\nb" },
		"nul":                  func(r *network.Request) { r.PodName = "a\x00b" },
		"name too long":        func(r *network.Request) { r.PodName = strings.Repeat("a", 254) },
		"no namespace":         func(r *network.Request) { r.Netns = "" },
		"relative namespace":   func(r *network.Request) { r.Netns = "netns/pod1" },
		"relative conf dir":    func(r *network.Request) { r.ConfDir = "net.d" },
		"port 0":               port(network.PortMapping{HostPort: 0, ContainerPort: 80, Protocol: "tcp"}),
		"port 65536":           port(network.PortMapping{HostPort: 65536, ContainerPort: 80, Protocol: "tcp"}),
		"container port":       port(network.PortMapping{HostPort: 80, ContainerPort: -1, Protocol: "tcp"}),
		"protocol":             port(network.PortMapping{HostPort: 80, ContainerPort: 80, Protocol: "TCP -j ACCEPT"}),
		"host ip": port(network.PortMapping{HostPort: 80, ContainerPort: 80, Protocol: "tcp",
			HostIP: "0.0.0.0/0"}),
		"host ip with zone": port(network.PortMapping{HostPort: 80, ContainerPort: 80, Protocol: "tcp",
			HostIP: "fe80::1%eth0"}),
		"DNS server": func(r *network.Request) { r.DNS.Servers = []string{"dns.example"} },
		"DNS search": func(r *network.Request) { r.DNS.Searches = []string{"a b"} },
		"cgroup":     func(r *network.Request) { r.CgroupPath = "/a\n/b" },
	} {
		r := good
		spoil(&r)
		if _, err := e.Network.Setup(t.Context(), r); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: Setup = %v, want an invalid argument", name, err)
		}
	}
	attached(t, e)
}

func cancelled(t *testing.T, e Env) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := e.Request(t, "pod1")
	if _, err := e.Network.Setup(ctx, r); !errors.Is(err, context.Canceled) {
		t.Errorf("Setup = %v, want canceled", err)
	}
	detach(t, e, "pod1")
	if _, err := e.Network.Setup(t.Context(), r); err != nil {
		t.Fatalf("after a cancelled Setup: %v", err)
	}
	if err := e.Network.Teardown(ctx, "pod1"); !errors.Is(err, context.Canceled) {
		t.Errorf("Teardown = %v, want canceled", err)
	}
	detach(t, e, "pod1")
}

func manyPods(t *testing.T, e Env) {
	const pods = 8
	var mu sync.Mutex
	seen := map[netip.Addr]string{}
	var wg sync.WaitGroup
	for i := range pods {
		wg.Go(func() {
			id := fmt.Sprintf("pod%d", i)
			result, err := e.Network.Setup(t.Context(), e.Request(t, id))
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, ip := range result.IPs {
				if other, ok := seen[ip]; ok {
					t.Errorf("%s and %s have the same address %s", id, other, ip)
				}
				seen[ip] = id
			}
		})
	}
	wg.Wait()
	for i := range pods {
		wg.Go(func() { detach(t, e, fmt.Sprintf("pod%d", i)) })
	}
	wg.Wait()
}

func collect(t *testing.T, e Env) {
	for _, id := range []string{"keep", "lost1", "lost2"} {
		if _, err := e.Network.Setup(t.Context(), e.Request(t, id)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := e.Network.GC(t.Context(), func() []string { return []string{"keep", "never-seen"} }); err != nil {
			t.Errorf("GC = %v, want nil", err)
		}
		attached(t, e, "keep")
	}
	detach(t, e, "keep")
}

// collectDuring: a pod that is attached while a collection asks which are in use, and is not in the answer, is spared.
func collectDuring(t *testing.T, e Env) {
	r := e.Request(t, "pod1")
	var setup sync.WaitGroup
	err := e.Network.GC(t.Context(), func() []string {
		setup.Go(func() {
			if _, err := e.Network.Setup(t.Context(), r); err != nil {
				t.Errorf("Setup = %v, want nil", err)
			}
		})
		time.Sleep(20 * time.Millisecond) // for a Setup that does not wait to attach the pod
		return nil
	})
	if err != nil && !errdefs.IsUnavailable(err) {
		t.Errorf("GC = %v, want nil or ErrUnavailable", err)
	}
	setup.Wait()
	attached(t, e, "pod1")
	detach(t, e, "pod1")
}

// noNetns: a pod cannot be attached before its network namespace is pinned, and Teardown undoes a half-done attachment.
func noNetns(t *testing.T, e Env) {
	r := e.Request(t, "pod1")
	r.Netns = filepath.Join(t.TempDir(), "absent")
	if _, err := e.Network.Setup(t.Context(), r); err == nil {
		t.Error("Setup without a network namespace = nil, want an error")
	}
	detach(t, e, "pod1")
	attached(t, e)
	if _, err := e.Network.Setup(t.Context(), e.Request(t, "pod1")); err != nil {
		t.Errorf("Setup after one that failed = %v, want nil", err)
	}
	detach(t, e, "pod1")
}

// leases: an attached pod holds the addresses that Setup returned, until Teardown.
func leases(t *testing.T, e Env) {
	result, err := e.Network.Setup(t.Context(), e.Request(t, "pod1"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := e.Network.Leases()
	if err != nil || len(got) != 1 || len(got["pod1"]) != len(result.IPs) {
		t.Errorf("Leases = %v, %v, want %v of pod1", got, err, result.IPs)
	}
	detach(t, e, "pod1")
	if got, err := e.Network.Leases(); err != nil || len(got) > 0 {
		t.Errorf("Leases after Teardown = %v, %v, want none", got, err)
	}
}

// abandonUnknown: Abandon needs the pod's id and no more. TestAbandon of package network damages real records.
func abandonUnknown(t *testing.T, e Env) {
	for range 2 {
		if err := e.Network.Abandon(t.Context(), network.Request{PodID: "never-seen", Netns: "/gone"}); err != nil {
			t.Errorf("Abandon of a pod that is not attached = %v, want nil", err)
		}
	}
	if err := e.Network.Abandon(t.Context(), network.Request{}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("Abandon of no pod = %v, want an invalid argument", err)
	}
}

func dialNobody(t *testing.T, e Env) {
	if conn, err := e.Network.Dial(t.Context(), "never-seen", 80); !errdefs.IsNotFound(err) {
		t.Errorf("Dial of a pod that is not attached = %v, %v, want not found", conn, err)
	}
}
