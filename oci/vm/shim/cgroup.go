package shim

import (
	"fmt"
	"os"
	"strings"

	"github.com/containerd/cgroups/v3"
	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// joinCgroup moves the shim into the infra container's cgroup, and with it all that it starts: the pod's cgroup then
// limits and counts everything of the machine. The caller removes the cgroup. path is the cgroupsPath of config.json: a
// path, or slice:prefix:name for systemd.
func joinCgroup(path string) error {
	if path == "" {
		return nil
	}
	var err error
	switch parts := strings.Split(path, ":"); {
	case len(parts) == 3:
		err = joinScope(parts[0], parts[1]+"-"+parts[2]+".scope")
	case cgroups.Mode() == cgroups.Unified:
		var m *cgroup2.Manager
		if m, err = cgroup2.NewManager("/sys/fs/cgroup", path, &cgroup2.Resources{}); err == nil {
			err = m.AddProc(uint64(os.Getpid()))
		}
	default:
		var c cgroup1.Cgroup
		if c, err = cgroup1.New(cgroup1.StaticPath(path), &specs.LinuxResources{}); err == nil {
			err = c.AddProc(uint64(os.Getpid()))
		}
	}
	if err != nil {
		return fmt.Errorf("join cgroup %s: %w", path, err)
	}
	return nil
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
