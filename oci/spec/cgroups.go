package spec

import (
	"path"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// DefaultCgroup is the parent of containers whose pod has none: /podd, or podd.slice.
const DefaultCgroup = "podd"

// CgroupsPath returns the OCI cgroupsPath of a container below a pod's cgroup_parent: for cgroupfs the path
// <parent>/<prefix>-<id>, for systemd "<slice>:<prefix>:<id>".
//
// The kubelet sends cgroup_parent as a path for both drivers. For systemd its last part is the slice; the name of the
// slice implies its parents. An empty parent means DefaultCgroup. Errors wrap ErrInvalidArgument.
func CgroupsPath(systemd bool, parent, prefix, id string) (string, error) {
	for _, part := range []string{prefix, id} {
		if !unitName(part) {
			return "", invalid("cgroup: %q is not a valid prefix or id", part)
		}
	}
	if systemd {
		slice, err := sliceOf(parent)
		if err != nil {
			return "", err
		}
		return slice + ":" + prefix + ":" + id, nil
	}
	if parent == "" {
		parent = DefaultCgroup
	}
	if err := checkCgroup(parent); err != nil {
		return "", err
	}
	return path.Join("/", parent, prefix+"-"+id), nil
}

// CheckCgroupPrefix returns an error for a prefix that cannot start the names of cgroups with both cgroup drivers.
func CheckCgroupPrefix(prefix string) error {
	if !unitName(prefix) || len(prefix) > maxCgroupPrefix {
		return invalid("%.80q is not 1 to %d letters, digits, dashes, dots and underscores", prefix, maxCgroupPrefix)
	}
	return nil
}

// maxCgroupPrefix bounds a prefix, in bytes. With an id and ".scope" it is far below the kernel's limit for names.
const maxCgroupPrefix = 32

// unitName reports whether s is safe as a file name and at the end of a systemd scope's name.
func unitName(s string) bool { return plain(s, "-_.") && strings.IndexAny(s, "-_.") != 0 }

// plain reports whether s is one or more ASCII letters, digits or extra characters.
func plain(s, extra string) bool {
	for _, r := range s {
		alnum := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		if !alnum && !strings.ContainsRune(extra, r) {
			return false
		}
	}
	return s != ""
}

func checkCgroup(parent string) error {
	if err := checkText("cgroup parent", parent); err != nil {
		return err
	}
	for part := range strings.SplitSeq(parent, "/") {
		if part == ".." || part == "." || strings.Contains(part, "\n") {
			return invalid("cgroup parent %q is not a clean path", parent)
		}
	}
	return nil
}

// sliceOf returns the name of the slice at the end of a path. A dash separates levels of the tree (systemd.slice(5)),
// so it cannot be first, last or doubled; "-.slice" is the root.
func sliceOf(parent string) (string, error) {
	if parent == "" {
		return DefaultCgroup + ".slice", nil
	}
	if err := checkCgroup(parent); err != nil {
		return "", err
	}
	slice := path.Base(parent)
	stem, ok := strings.CutSuffix(slice, ".slice")
	if !ok {
		return "", invalid("cgroup parent %q: the systemd cgroup driver needs the name of a slice", parent)
	}
	if stem == "-" {
		return slice, nil
	}
	for part := range strings.SplitSeq(stem, "-") {
		if !plain(part, `_.\@`) {
			return "", invalid("cgroup parent %q: %q is not the name of a slice", parent, slice)
		}
	}
	return slice, nil
}

func (b *builder) cgroup() error {
	if err := checkText("cgroups path", b.in.CgroupsPath); err != nil {
		return err
	}
	b.spec.Linux.CgroupsPath = b.in.CgroupsPath
	if b.in.WritableCgroups && !b.privileged && !b.writableCgroups() {
		b.warn("writable_cgroups has no effect: it needs a user namespace, cgroup v2, and a runtime with the node's kernel")
	}
	return nil
}

// writableCgroups reports whether Input.WritableCgroups has an effect for this container.
func (b *builder) writableCgroups() bool {
	return b.in.WritableCgroups && b.in.Host.CgroupV2 && b.userns() && !b.privileged && !b.in.Handler.OwnKernel
}

// limitCgroups bounds the cgroups that a container can make: each takes memory of the kernel, of which only a part is
// counted, and tools remove them by paths.
func limitCgroups(r *specs.LinuxResources) {
	if r.Unified == nil {
		r.Unified = map[string]string{}
	}
	r.Unified["cgroup.max.descendants"], r.Unified["cgroup.max.depth"] = "1000", "10"
}
