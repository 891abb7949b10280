package sandbox

import (
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/image/imagetest"
	"github.com/podd-project/podd/network"
	"github.com/podd-project/podd/network/networktest"
	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/ocitest"
	"github.com/podd-project/podd/sandbox/budget"
	"github.com/podd-project/podd/sandbox/files"
	"github.com/podd-project/podd/sandbox/namespaces/namespacestest"
)

// machine is the node under the engine: the fakes on which the mechanisms' own suites run. What is on it outlives the
// engines that drive it.
type machine struct {
	dir        string
	netnsDir   string // the directory of network namespaces, as if other programs used it
	namespaces *namespacestest.Fake
	network    *networktest.Fake
	images     *imagetest.Fake
	runtimes   map[string]*ocitest.Fake // by handler

	mu     sync.Mutex
	mounts map[string]bool
	// known are the pods and containers that the plugins were asked about and not told of the end of.
	known map[string]bool
}

const fakeImageID = "1111111111111111111111111111111111111111111111111111111111111111"

func newMachine(t testing.TB) *machine {
	m := &machine{
		dir: t.TempDir(), namespaces: namespacestest.NewFake(), network: networktest.NewFake(),
		runtimes: map[string]*ocitest.Fake{}, mounts: map[string]bool{}, known: map[string]bool{},
	}
	m.netnsDir = filepath.Join(m.dir, "netns")
	m.images = imagetest.NewFake(filepath.Join(m.dir, "rootfs"))
	m.images.Add(image.Image{
		ID: fakeImageID, Tags: []string{"docker.io/library/busybox:latest"},
		Config: v1.ImageConfig{Cmd: []string{"/bin/sh"}},
	}, nil)
	for _, handler := range []string{"runc", "other", "vm", "gvisor"} {
		m.runtimes[handler] = ocitest.NewFake(m.bundle(""))
	}
	return m
}

func (m *machine) bundle(id string) string { return filepath.Join(m.dir, "run/containers", id) }

// leaks lists what is left on the machine.
func (m *machine) leaks() []string {
	var left []string
	add := func(what string, names ...string) {
		for _, name := range names {
			left = append(left, what+" "+name)
		}
	}
	add("namespace", m.namespaces.Mounted()...)
	add("attachment", m.attachments()...)
	leases, _ := m.network.Leases()
	add("lease of", slices.Collect(maps.Keys(leases))...)
	add("rootfs", m.rootfs()...)
	for handler, f := range m.runtimes {
		add(handler+" container", f.IDs()...)
	}
	m.mu.Lock()
	add("mount", slices.Collect(maps.Keys(m.mounts))...)
	add("known to plugins:", slices.Collect(maps.Keys(m.known))...)
	m.mu.Unlock()
	for _, pattern := range []string{
		"root/pods/*", "root/pods/.*", "run/pods/*", "run/etc/*", "run/containers/*", "run/netns/*", "netns/*",
		"root/quarantine/*", "rootfs/*",
	} {
		files, _ := filepath.Glob(filepath.Join(m.dir, pattern))
		add("file", files...)
	}
	slices.Sort(left)
	return left
}

func (m *machine) attachments() []string {
	ids, _ := m.network.Attachments() // the fake has no errors
	return ids
}

// attach attaches a pod that no record knows.
func (m *machine) attach(t *testing.T, id string) {
	t.Helper()
	_, err := m.network.Setup(t.Context(), network.Request{PodID: id, Netns: m.dir})
	must(t, err)
}

func (m *machine) rootfs() []string {
	ids, _ := m.images.ContainersWithMounts(context.Background()) // the fake has no errors
	return ids
}

// makeRootfs makes root filesystems that no record knows.
func (m *machine) makeRootfs(t *testing.T, containers ...string) {
	t.Helper()
	for _, id := range containers {
		_, err := m.images.Rootfs(t.Context(), image.RootfsRequest{ContainerID: id, ImageID: fakeImageID})
		must(t, err)
	}
}

func (m *machine) pidsAlive() (n int) {
	for _, f := range m.runtimes {
		n += f.Running()
	}
	return n
}

// exit ends a container by itself.
func (m *machine) exit(id string, x oci.Exit) {
	for _, f := range m.runtimes {
		f.Exit(id, x)
	}
}

// reboot is what a reboot does to the machine: /run, processes and mounts are gone, CNI's own state is not.
func (m *machine) reboot(t *testing.T) {
	t.Helper()
	for _, f := range m.runtimes {
		must(t, f.Reboot())
	}
	m.namespaces.Reboot()
	m.mu.Lock()
	clear(m.mounts)
	clear(m.known)
	m.mu.Unlock()
	must(t, errors.Join(os.RemoveAll(filepath.Join(m.dir, "run")), os.RemoveAll(m.netnsDir))) // both are on a tmpfs
}

// deps are the mechanisms as a daemon opens them; h gets all calls.
func (m *machine) deps(h *faults) Deps {
	namespaces, network, images := m.namespaces.Reopen(), m.network.Reopen(), m.images.Reopen()
	namespaces.Before, namespaces.After = h.before, h.after
	network.Before, network.After = h.before, h.after
	images.Before, images.After = h.before, h.after
	return Deps{
		Budgets:    budget.New(1, 1, 1),
		Records:    fakeRecords{h: h},
		Plugins:    m.newPlugins(h),
		Namespaces: namespaces, Network: network, Images: images, Mounter: fakeMounter{m, h},
		Runtimes: map[string]Runtime{
			"runc": m.runtime(h, "runc"), "other": m.runtime(h, "other"), "gvisor": ownKernel{m.runtime(h, "gvisor")},
		},
	}
}

func discardLog() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

// runtime is a handler as a daemon opens it.
func (m *machine) runtime(h *faults, handler string) *ocitest.Fake {
	f := m.runtimes[handler].Reopen()
	f.Before, f.After = h.before, h.after
	return f
}

// fakeMounter is the only mechanism without a suite: tmpfs has two system calls.
type fakeMounter struct {
	m *machine
	h *faults
}

func (s fakeMounter) Mount(ctx context.Context, path string, fs files.Tmpfs) error {
	return s.call(ctx, "mount "+fs.Name, path, func() error { s.m.mounts[path] = true; return os.MkdirAll(path, 0o700) })
}

func (s fakeMounter) Unmount(ctx context.Context, path string) error {
	return s.call(ctx, "unmount", path, func() error { delete(s.m.mounts, path); return nil })
}

func (s fakeMounter) call(ctx context.Context, verb, path string, act func() error) error {
	if err := s.h.before(ctx, verb, path); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.m.mu.Lock()
	err := act()
	s.m.mu.Unlock()
	return errors.Join(err, s.h.after(ctx, verb, path))
}
