package ui

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/daemon"
	"github.com/podd-project/podd/test/images"
	"github.com/podd-project/podd/test/leak"
)

const (
	busybox = "registry.k8s.io/e2e-test-images/busybox:1.29-2"
	// allPods are on the node. The first withNetwork have a network of their own, the first withContainer a container.
	allPods, withNetwork, withContainer = 500, 120, 40
	// stuckPod waits for its network until release.
	stuckPod = "cart-0"
)

// node is a podd with pods.
type node struct {
	*testing.T
	*daemon.Daemon
	registry *images.Registry
}

// startNode starts a podd, whose network is stuck for stuckPod, and which removes its pods at the end of the test.
func startNode(t *testing.T) *node {
	t.Helper()
	n := &node{T: t, registry: images.Serve(t)}
	var err error
	n.Daemon, err = daemon.New(daemon.Options{Registry: n.registry, Gated: true})
	n.must(err)
	before, err := leak.Take(n.Leak())
	n.must(err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of podd's log:\n%s", n.LogTail(20))
		}
		n.check(n.removePods())
		n.check(n.Close())
		left, err := before.Wait(context.WithoutCancel(t.Context()), n.Leak())
		if err != nil || len(left) > 0 {
			t.Errorf("left are %v, %v, want nothing", left, err)
		}
	})
	n.must(n.Start(t.Context()))
	n.must(n.Gates.Hold("bridge-ADD", stuckPod))
	n.pull(busybox)
	return n
}

func (n *node) must(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

func (n *node) check(err error) {
	n.Helper()
	if err != nil {
		n.Error(err)
	}
}

func (n *node) pull(image string) {
	n.Helper()
	_, err := n.Images.PullImage(n.Context(), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: image}})
	n.must(err)
}

// fill runs the pods.
func (n *node) fill() {
	n.Helper()
	began := time.Now()
	group, ctx := errgroup.WithContext(n.Context())
	group.SetLimit(4)
	apps := []string{"shop/web", "shop/search", "shop/checkout", "data/queue", "data/store", "batch/report", "edge/proxy"}
	for i := allPods - 1; i >= 0; i-- { // the last hundred have a network
		namespace, app, _ := strings.Cut(apps[i%len(apps)], "/")
		group.Go(func() error { return n.run(ctx, namespace, fmt.Sprintf("%s-%d", app, i), i) })
	}
	n.must(group.Wait())
	n.Logf("%d pods are up after %v", allPods, time.Since(began).Round(time.Second))
	n.awaitAddresses()
}

// awaitAddresses waits until no address of the machine is tentative, as those of the pods' veth pairs are for a second
// or two. Chromium aborts what it loads when an address changes (ERR_NETWORK_CHANGED).
func (n *node) awaitAddresses() {
	n.Helper()
	const tentative = 0x40 // IFA_F_TENTATIVE
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		list, err := os.ReadFile("/proc/net/if_inet6")
		if errors.Is(err, fs.ErrNotExist) { // no IPv6
			return
		}
		n.must(err)
		settled := true
		for line := range strings.Lines(string(list)) {
			var address, name string
			var index, prefix, scope, flags int
			_, err := fmt.Sscanf(line, "%s %x %x %x %x %s", &address, &index, &prefix, &scope, &flags, &name)
			n.must(err)
			settled = settled && flags&tentative == 0
		}
		if settled {
			return
		}
		if time.Now().After(deadline) {
			n.Fatalf("addresses are tentative for %v:\n%s", patience, list)
		}
	}
}

// config is the config of a pod.
func (n *node) config(namespace, name string, network cri.NamespaceMode) *cri.PodSandboxConfig {
	return &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: name, Namespace: namespace, Uid: "uid-of-" + name},
		LogDirectory: n.Path("logs", name),
		Linux: &cri.LinuxPodSandboxConfig{CgroupParent: n.CgroupParent, SecurityContext: &cri.LinuxSandboxSecurityContext{
			NamespaceOptions: &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER, Network: network},
		}},
	}
}

// run runs one pod. What it has depends on its number.
func (n *node) run(ctx context.Context, namespace, name string, number int) error {
	network := cri.NamespaceMode_NODE
	if number < withNetwork {
		network = cri.NamespaceMode_POD
	}
	config := n.config(namespace, name, network)
	if err := os.MkdirAll(config.LogDirectory, 0o755); err != nil {
		return err
	}
	pod, err := n.Runtime.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config})
	if err != nil || number >= withContainer {
		return err
	}
	script := fmt.Sprintf("dd if=/dev/zero of=/written bs=1024 count=%d; exec sleep 10000", 64*(number+1))
	return n.start(ctx, pod.PodSandboxId, config, "sh", "-c", script)
}

// start creates and starts the container main, which has 32 MiB of memory.
func (n *node) start(ctx context.Context, pod string, config *cri.PodSandboxConfig, command ...string) error {
	const memory = 32 << 20
	created, err := n.Runtime.CreateContainer(ctx, &cri.CreateContainerRequest{
		PodSandboxId: pod, SandboxConfig: config, Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: "main"}, LogPath: "0.log", Command: command,
			Image: &cri.ImageSpec{Image: busybox, UserSpecifiedImage: busybox},
			Linux: &cri.LinuxContainerConfig{
				Resources: &cri.LinuxContainerResources{MemoryLimitInBytes: memory, MemorySwapLimitInBytes: memory},
				SecurityContext: &cri.LinuxContainerSecurityContext{
					NamespaceOptions: config.Linux.SecurityContext.NamespaceOptions,
				},
			},
		},
	})
	if err != nil {
		return err
	}
	_, err = n.Runtime.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: created.ContainerId})
	return err
}

func (n *node) removePods() error {
	ctx := context.WithoutCancel(n.Context())
	list, err := n.Runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	var group errgroup.Group
	group.SetLimit(4)
	for _, pod := range list.Items {
		group.Go(func() error {
			_, err := n.Runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: pod.Id})
			if err == nil {
				_, err = n.Runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: pod.Id})
			}
			return err
		})
	}
	return group.Wait()
}
