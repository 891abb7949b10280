package criu

import (
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/cyphar/filepath-securejoin"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// CheckMounts returns errdefs.ErrPermissionDenied if a link in the container's root filesystem gives a mount a path
// that CRIU before 4.3.1 reads as the path of a directory of the node. A runtime tells CRIU each mount and device as
// mnt[PATH]:SOURCE, where PATH is the target of the links. Later runtimes check it too: CVE-2026-119101 (runc) and
// CVE-2026-115520 (crun).
func CheckMounts(s *specs.Spec) error {
	var paths []string
	for _, m := range s.Mounts {
		paths = append(paths, m.Destination)
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
