// Package sandboxtest has Machine: a node made of the fakes of the mechanisms below the engine, for the engine's tests
// and for test/simulate. It knows no engine. Only tests may import it.
package sandboxtest

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/image/imagetest"
	"github.com/podd-project/podd/network/networktest"
	"github.com/podd-project/podd/oci/ocitest"
	"github.com/podd-project/podd/sandbox/files"
	"github.com/podd-project/podd/sandbox/namespaces/namespacestest"
)

// ImageID is the id of busybox, the only image of a new Machine.
const ImageID = "1111111111111111111111111111111111111111111111111111111111111111"

// Machine is the node under an engine: the fakes on which the mechanisms' own suites run. It outlives the engines that
// drive it. Root and run directories are Dir/root and Dir/run.
type Machine struct {
	Dir        string
	NetnsDir   string // the directory of network namespaces, as if other programs used it
	Namespaces *namespacestest.Fake
	Network    *networktest.Fake
	Images     *imagetest.Fake
	Runtimes   map[string]*ocitest.Fake // by handler

	mu     sync.Mutex
	mounts map[string]bool
}

// New returns a machine with its files in dir and these handlers.
func New(dir string, handlers ...string) *Machine {
	m := &Machine{
		Dir: dir, NetnsDir: filepath.Join(dir, "netns"), Namespaces: namespacestest.NewFake(),
		Network: networktest.NewFake(), Images: imagetest.NewFake(filepath.Join(dir, "rootfs")),
		Runtimes: map[string]*ocitest.Fake{}, mounts: map[string]bool{},
	}
	m.Images.Add(image.Image{
		ID: ImageID, Tags: []string{"docker.io/library/busybox:latest"},
		Config: v1.ImageConfig{Cmd: []string{"/bin/sh"}},
	}, nil)
	for _, handler := range handlers {
		m.Runtimes[handler] = ocitest.NewFake(filepath.Join(dir, "run/containers"))
	}
	return m
}

// Leaks lists the resources on the machine: none if nothing leaked.
func (m *Machine) Leaks() []string {
	var left []string
	add := func(kind string, names ...string) {
		for _, name := range names {
			left = append(left, kind+" "+name)
		}
	}
	attachments, _ := m.Network.Attachments() // the fakes have no errors
	leases, _ := m.Network.Leases()
	rootfs, _ := m.Images.ContainersWithMounts(context.Background())
	add("namespace", m.Namespaces.Mounted()...)
	add("attachment", attachments...)
	add("lease of", slices.Collect(maps.Keys(leases))...)
	add("rootfs", rootfs...)
	for handler, f := range m.Runtimes {
		add(handler+" container", f.IDs()...)
	}
	m.mu.Lock()
	add("mount", slices.Collect(maps.Keys(m.mounts))...)
	m.mu.Unlock()
	for _, pattern := range []string{
		"root/pods/*", "root/pods/.*", "run/pods/*", "run/etc/*", "run/containers/*", "run/netns/*", "netns/*",
		"root/quarantine/*", "rootfs/*",
	} {
		files, _ := filepath.Glob(filepath.Join(m.Dir, pattern))
		add("file", files...)
	}
	slices.Sort(left)
	return left
}

// Reboot is the effect of a reboot on the machine: /run, processes and mounts are gone, CNI's own state is not.
func (m *Machine) Reboot() error {
	var errs []error
	for _, f := range m.Runtimes {
		errs = append(errs, f.Reboot())
	}
	m.Namespaces.Reboot()
	m.mu.Lock()
	clear(m.mounts)
	m.mu.Unlock()
	errs = append(errs, os.RemoveAll(filepath.Join(m.Dir, "run")), os.RemoveAll(m.NetnsDir)) // both are on a tmpfs
	return errors.Join(errs...)
}

// Hook is called before or after a call of a fake; see ocitest.Fake.
type Hook func(ctx context.Context, verb, id string) error

// Mounter mounts nothing and notes where. It is the only mechanism without a suite: tmpfs has two system calls.
func (m *Machine) Mounter(before, after Hook) files.Mounter { return mounter{m, before, after} }

type mounter struct {
	m             *Machine
	before, after Hook
}

func (s mounter) Mount(ctx context.Context, path string, fs files.Tmpfs) error {
	return s.call(ctx, "mount "+fs.Name, path, func() error { s.m.mounts[path] = true; return os.MkdirAll(path, 0o700) })
}

func (s mounter) Unmount(ctx context.Context, path string) error {
	return s.call(ctx, "unmount", path, func() error { delete(s.m.mounts, path); return nil })
}

func (s mounter) call(ctx context.Context, verb, path string, act func() error) error {
	if err := s.before(ctx, verb, path); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.m.mu.Lock()
	err := act()
	s.m.mu.Unlock()
	return errors.Join(err, s.after(ctx, verb, path))
}
