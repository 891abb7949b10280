package namespaces

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// maxHostname is the kernel's limit (__NEW_UTS_LEN), in bytes.
const maxHostname = 64

// maxMappings is the kernel's limit of lines in /proc/<pid>/uid_map.
const maxMappings = 340

// Validate checks everything about r that can be checked without doing it. Errors are errdefs.ErrInvalidArgument.
func (r Request) Validate() error {
	checks := []func() error{r.checkPaths, r.checkMappings, r.checkHostname, func() error { return CheckSysctls(r) }}
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (r Request) checkPaths() error {
	seen := map[string]string{}
	for _, k := range r.kinds() {
		if err := checkPath(k.path); err != nil {
			return err
		}
		if other, ok := seen[k.path]; ok {
			return fmt.Errorf(
				"%w: %s and %s namespace have the same pin file %s", errdefs.ErrInvalidArgument, other, k.name, k.path,
			)
		}
		seen[k.path] = k.name
	}
	return nil
}

func checkPath(path string) error {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/" || strings.ContainsRune(path, 0) {
		return fmt.Errorf("%w: pin file %q is not a clean absolute path", errdefs.ErrInvalidArgument, path)
	}
	return nil
}

func (r Request) checkMappings() error {
	if r.User == "" {
		if len(r.UIDs) != 0 || len(r.GIDs) != 0 {
			return fmt.Errorf("%w: id mappings without a user namespace", errdefs.ErrInvalidArgument)
		}
		return nil
	}
	if err := checkMapping("uid", r.UIDs); err != nil {
		return err
	}
	return checkMapping("gid", r.GIDs)
}

// checkMapping says in words what the kernel would answer with EINVAL.
func checkMapping(what string, maps []specs.LinuxIDMapping) error {
	if len(maps) == 0 || len(maps) > maxMappings {
		return fmt.Errorf(
			"%w: a user namespace needs 1 to %d %s mappings, not %d", errdefs.ErrInvalidArgument, maxMappings, what, len(maps),
		)
	}
	for i, m := range maps {
		// 4294967295 is the id that means "no change" to the kernel; it cannot be mapped.
		if m.Size == 0 || uint64(m.ContainerID)+uint64(m.Size) > 1<<32-1 || uint64(m.HostID)+uint64(m.Size) > 1<<32-1 {
			return fmt.Errorf(
				"%w: %s mapping %d:%d:%d is empty or too large", errdefs.ErrInvalidArgument, what, m.ContainerID, m.HostID, m.Size,
			)
		}
		if slices.ContainsFunc(maps[:i], func(o specs.LinuxIDMapping) bool {
			return overlap(o.ContainerID, o.Size, m.ContainerID, m.Size) || overlap(o.HostID, o.Size, m.HostID, m.Size)
		}) {
			return fmt.Errorf(
				"%w: %s mapping %d:%d:%d overlaps another one", errdefs.ErrInvalidArgument, what, m.ContainerID, m.HostID, m.Size,
			)
		}
	}
	return nil
}

func overlap(a, asize, b, bsize uint32) bool {
	return uint64(a) < uint64(b)+uint64(bsize) && uint64(b) < uint64(a)+uint64(asize)
}

func (r Request) checkHostname() error {
	switch {
	case r.Hostname == "":
		return nil
	case r.UTS == "":
		return fmt.Errorf(
			"%w: hostname %q without a UTS namespace: the name belongs to the node", errdefs.ErrInvalidArgument, r.Hostname,
		)
	case len(r.Hostname) > maxHostname:
		return fmt.Errorf(
			"%w: hostname has %d bytes, the kernel takes %d", errdefs.ErrInvalidArgument, len(r.Hostname), maxHostname,
		)
	case strings.ContainsFunc(r.Hostname, func(c rune) bool { return c <= ' ' || c == 0x7f }):
		return fmt.Errorf("%w: hostname %q has a space or control character", errdefs.ErrInvalidArgument, r.Hostname)
	}
	return nil
}
