package shim

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/containerd/cgroups/v3"
	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// unified is where cgroups of version 2 are mounted.
const unified = "/sys/fs/cgroup"

// joinCgroup moves the shim into the infra container's cgroup, and with it all that it starts: the pod's cgroup then
// limits and counts everything of the machine. path is the cgroupsPath of config.json: a path, or slice:prefix:name for
// systemd. leave moves the shim back and removes the cgroup, which must be called when nothing else runs in it.
func joinCgroup(path string) (leave func() error, err error) {
	leave = func() error { return nil }
	switch parts := strings.Split(path, ":"); {
	case path == "":
		return leave, nil
	case len(parts) == 3: // systemd removes it when the shim ends
		err = joinScope(parts[0], parts[1]+"-"+parts[2]+".scope")
	case cgroups.Mode() == cgroups.Unified:
		leave, err = joinUnified(path)
	default:
		leave, err = joinHierarchies(path)
	}
	if err != nil {
		return nil, fmt.Errorf("join cgroup %s: %w", path, err)
	}
	return leave, nil
}

// joinUnified joins a cgroup of version 2.
func joinUnified(path string) (leave func() error, err error) {
	before, err := cgroup2.PidGroupPath(os.Getpid())
	if err != nil {
		return nil, err
	}
	m, err := cgroup2.NewManager(unified, path, &cgroup2.Resources{})
	if err != nil {
		return nil, err
	}
	leave = func() error {
		old, err := cgroup2.Load(before)
		if err == nil {
			err = old.AddProc(uint64(os.Getpid()))
		}
		if err != nil {
			return err
		}
		return m.Delete()
	}
	return leave, m.AddProc(uint64(os.Getpid()))
}

// joinHierarchies joins a cgroup of version 1 in each hierarchy.
func joinHierarchies(path string) (leave func() error, err error) {
	old, err := cgroup1.Load(cgroup1.PidPath(os.Getpid()))
	if err != nil {
		return nil, err
	}
	c, err := cgroup1.New(cgroup1.StaticPath(path), &specs.LinuxResources{})
	if err != nil {
		return nil, err
	}
	leave = func() error {
		if err := old.AddProc(uint64(os.Getpid())); err != nil {
			return err
		}
		return c.Delete()
	}
	return leave, c.AddProc(uint64(os.Getpid()))
}

// joinScope has systemd make a scope with the shim in it.
func joinScope(slice, name string) error {
	if cgroups.Mode() == cgroups.Unified {
		_, err := cgroup2.NewSystemd(slice, name, os.Getpid(), &cgroup2.Resources{})
		return err
	}
	c, err := cgroup1.New(cgroup1.Slice(slice, name), &specs.LinuxResources{}, cgroup1.WithHierarchy(cgroup1.Systemd))
	if err != nil {
		return err
	}
	return c.AddProc(uint64(os.Getpid()))
}

// openCgroup returns what removes a cgroup, nil if there is none or systemd removes it.
func openCgroup(path string) (remove func() error, err error) {
	if path == "" || strings.Contains(path, ":") {
		return nil, nil
	}
	if cgroups.Mode() == cgroups.Unified {
		m, err := cgroup2.Load(path)
		if err != nil {
			return nil, err
		}
		return m.Delete, nil
	}
	c, err := cgroup1.Load(cgroup1.StaticPath(path))
	if errors.Is(err, cgroup1.ErrCgroupDeleted) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return c.Delete, nil
}

const (
	// deathGrace is how long the processes of a machine whose shim was killed may take to end.
	deathGrace = 3 * time.Second
	deathPause = 20 * time.Millisecond
)

// Cleanup removes the cgroup that a killed shim leaves behind. The bundle is the caller's. Its machine
// and the mounts of that end with it.
func Cleanup(bundle string) error {
	spec, err := readSpec(bundle)
	if err != nil {
		return err
	}
	remove, err := openCgroup(spec.Linux.CgroupsPath)
	if err != nil || remove == nil {
		return err
	}
	for end := time.Now().Add(deathGrace); ; time.Sleep(deathPause) {
		if err = remove(); err == nil || time.Now().After(end) {
			return err
		}
	}
}
