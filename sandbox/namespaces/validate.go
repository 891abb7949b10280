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

// Validate checks everything about r that does not depend on the machine. Errors are errdefs.ErrInvalidArgument.
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
			return invalid("%s and %s namespace have the same pin file %s", other, k.name, k.path)
		}
		seen[k.path] = k.name
	}
	if r.Claim == "" {
		return nil
	}
	if r.Net == "" {
		return invalid("claim %q without a network namespace", r.Claim)
	}
	return checkPath(r.Claim)
}

func checkPath(path string) error {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/" || strings.ContainsRune(path, 0) {
		return invalid("pin file %q is not a clean absolute path", path)
	}
	return nil
}

func (r Request) checkMappings() error {
	if r.User == "" {
		if len(r.UIDs) != 0 || len(r.GIDs) != 0 {
			return invalid("id mappings without a user namespace")
		}
		return nil
	}
	if err := checkMapping("uid", r.UIDs); err != nil {
		return err
	}
	return checkMapping("gid", r.GIDs)
}

// checkMapping rejects mappings that the kernel would reject with EINVAL.
func checkMapping(what string, maps []specs.LinuxIDMapping) error {
	if len(maps) == 0 || len(maps) > maxMappings {
		return invalid("a user namespace needs 1 to %d %s mappings, not %d", maxMappings, what, len(maps))
	}
	for i, m := range maps {
		// 4294967295 means "no change" to the kernel and cannot be mapped.
		if m.Size == 0 || uint64(m.ContainerID)+uint64(m.Size) > 1<<32-1 || uint64(m.HostID)+uint64(m.Size) > 1<<32-1 {
			return invalid("%s mapping %d:%d:%d is empty or too large", what, m.ContainerID, m.HostID, m.Size)
		}
		if slices.ContainsFunc(maps[:i], func(o specs.LinuxIDMapping) bool {
			return overlap(o.ContainerID, o.Size, m.ContainerID, m.Size) || overlap(o.HostID, o.Size, m.HostID, m.Size)
		}) {
			return invalid("%s mapping %d:%d:%d overlaps another one", what, m.ContainerID, m.HostID, m.Size)
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
		return invalid("hostname %q without a UTS namespace: the name belongs to the node", r.Hostname)
	case len(r.Hostname) > maxHostname:
		return invalid("hostname has %d bytes, the kernel takes %d", len(r.Hostname), maxHostname)
	case strings.ContainsFunc(r.Hostname, func(c rune) bool { return c <= ' ' || c == 0x7f }):
		return invalid("hostname %q has a space or control character", r.Hostname)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errdefs.ErrInvalidArgument, fmt.Sprintf(format, args...))
}
