package lazy

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/daemon"
	"github.com/podd-project/podd/test/images"
	"github.com/podd-project/podd/test/leak"
)

// node is a podd with an additional layer store.
type node struct {
	testing.TB
	*daemon.Daemon
	store *layerStore
	// busybox is the tar of that image.
	busybox []byte
}

// start starts both. Nothing of podd is left when the test ends.
func start(t testing.TB) *node {
	t.Helper()
	served := images.Serve(t)
	n := &node{TB: t, store: mount(t), busybox: busybox(t, served.Addr)}
	var err error
	n.Daemon, err = daemon.New(daemon.Options{
		Registry: served, Set: []string{`image.additional_layer_store="` + n.store.mountpoint + `"`},
	})
	must(t, err)
	before, err := leak.Take(n.Leak())
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of podd's log:\n%s", n.LogTail(40))
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		left, err := before.Wait(context.WithoutCancel(t.Context()), n.Leak())
		if err != nil || len(left) > 0 {
			t.Errorf("left are %v, %v, want nothing", left, err)
		}
	})
	must(t, n.Start(t.Context()))
	return n
}

func (n *node) pull(ref string) (id string) {
	n.Helper()
	reply, err := n.Images.PullImage(n.Context(), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: ref}})
	must(n, err)
	return reply.ImageRef
}

// listed reports whether podd says that it has an image.
func (n *node) listed(ref string) bool {
	n.Helper()
	reply, err := n.Images.ImageStatus(n.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: ref}})
	must(n, err)
	return reply.Image != nil
}

// pod is a pod with containers of images.
type pod struct {
	*node
	id     string
	config *cri.PodSandboxConfig
}

// pod runs a pod until the test ends or it is removed. With userns it has a user namespace.
func (n *node) pod(name string, userns bool) *pod {
	n.Helper()
	options := &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER, Network: cri.NamespaceMode_POD}
	if userns {
		ids := []*cri.IDMapping{{HostId: 200000, Length: 65536}}
		options.UsernsOptions = &cri.UserNamespace{Mode: cri.NamespaceMode_POD, Uids: ids, Gids: ids}
	}
	p := &pod{node: n, config: &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: name, Namespace: "default", Uid: "uid-of-" + name},
		LogDirectory: n.Path("logs", name),
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent:    path.Join(n.CgroupParent, name),
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: options},
		},
	}}
	must(n, os.MkdirAll(p.config.LogDirectory, 0o755))
	sandbox, err := n.Runtime.RunPodSandbox(n.Context(), &cri.RunPodSandboxRequest{Config: p.config})
	must(n, err)
	p.id = sandbox.PodSandboxId
	n.Cleanup(p.remove)
	return p
}

// run starts a container; the error is that of its creation.
func (p *pod) run(name, image string) (id string, err error) {
	p.Helper()
	created, err := p.Runtime.CreateContainer(p.Context(), &cri.CreateContainerRequest{
		PodSandboxId: p.id, SandboxConfig: p.config, Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: name}, LogPath: name + ".log",
			Image: &cri.ImageSpec{Image: image, UserSpecifiedImage: image},
			Linux: &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{
				NamespaceOptions: p.config.Linux.SecurityContext.NamespaceOptions,
			}},
		},
	})
	if err != nil {
		return "", err
	}
	_, err = p.Runtime.StartContainer(p.Context(), &cri.StartContainerRequest{ContainerId: created.ContainerId})
	must(p, err)
	return created.ContainerId, nil
}

// remove is idempotent.
func (p *pod) remove() {
	p.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.Context()), 30*time.Second)
	defer cancel()
	if _, err := p.Runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
		p.Error(err)
	}
	if _, err := p.Runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
		p.Error(err)
	}
	for _, hierarchy := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} { // version 2, and those of version 1
		groups, err := filepath.Glob(hierarchy + p.config.Linux.CgroupParent)
		must(p, err)
		for _, group := range groups {
			must(p, os.Remove(group))
		}
	}
}

// sh runs a command in a container and returns its output and exit code.
func (n *node) sh(container, command string) (string, int32) {
	n.Helper()
	reply, err := n.Runtime.ExecSync(n.Context(), &cri.ExecSyncRequest{
		ContainerId: container, Cmd: []string{"sh", "-c", command}, Timeout: 20,
	})
	must(n, err)
	return strings.TrimSpace(string(reply.Stdout) + string(reply.Stderr)), reply.ExitCode
}

// layers returns how many layers podd has stored.
func (n *node) layers() int {
	n.Helper()
	found, err := filepath.Glob(n.Path("root", "storage", "overlay", "*", "link"))
	must(n, err)
	return len(found)
}
