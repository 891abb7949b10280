package criu

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/cyphar/filepath-securejoin"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// runcDevices are the devices that runc adds to those of the config.json, and binds when it restores.
var runcDevices = []string{"/dev/null", "/dev/random", "/dev/full", "/dev/tty", "/dev/zero", "/dev/urandom"}

// CheckMounts returns errdefs.ErrPermissionDenied if a link in the container's root filesystem gives a mount a path
// that CRIU before 4.3.1 reads as the path of a directory of the node (CVE-2026-119101 of runc). runc tells CRIU each
// mount and device as mnt[PATH]:SOURCE, where PATH is the target of the links; of a cgroup mount on v1, each hierarchy.
func CheckMounts(s *specs.Spec) error {
	paths := slices.Clone(runcDevices)
	hierarchies, _ := os.ReadDir("/sys/fs/cgroup") // without it there are none
	for _, m := range s.Mounts {
		paths = append(paths, m.Destination)
		for _, h := range hierarchies {
			if m.Type == "cgroup" {
				paths = append(paths, filepath.Join(m.Destination, h.Name()))
			}
		}
	}
	if s.Linux != nil {
		for _, d := range s.Linux.Devices {
			paths = append(paths, d.Path)
		}
	}
	for _, path := range paths {
		resolved, err := securejoin.SecureJoin(s.Root.Path, path)
		if err != nil {
			return fmt.Errorf("mount %.200q: %w", path, err)
		}
		inside := strings.TrimPrefix(resolved, s.Root.Path)
		if inside == "" || strings.Contains(inside, "]:") {
			return fmt.Errorf("%w: in the image, the links of mount %.200q lead to %.200q, which CRIU would misread",
				errdefs.ErrPermissionDenied, path, inside)
		}
	}
	return nil
}
