package spec

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Container returns the config.json of a container. Warnings, for the log, list requests that this machine can satisfy
// only in part. Errors wrap errdefs.ErrInvalidArgument if the request is invalid, errdefs.ErrFailedPrecondition or
// ErrRRO if this machine or runtime cannot satisfy it.
func Container(in Input) (*specs.Spec, []string, error) {
	b, err := newBuilder(in)
	if err != nil {
		return nil, nil, err
	}
	return b.run([]step{
		{"command", (*builder).args},
		{"environment", (*builder).env},
		{"working directory", (*builder).cwd},
		{"user", (*builder).user},
		{"capabilities", (*builder).capabilities},
		{"seccomp", (*builder).seccomp},
		{"AppArmor", (*builder).apparmor},
		{"SELinux", (*builder).selinux},
		{"namespaces", (*builder).namespaces},
		{"mounts", (*builder).mounts},
		{"masked paths", (*builder).maskedPaths},
		{"devices", (*builder).devices},
		{"resources", (*builder).resources},
		{"node's defaults", (*builder).defaults},
		{"cgroup", (*builder).cgroup},
		{"annotations", (*builder).annotations},
	})
}

// step sets one part of a config.json. Steps run in order; later ones may read what earlier ones set.
type step struct {
	name string
	do   func(*builder) error
}

type builder struct {
	in Input
	// sc may be nil: its getters are safe on nil.
	sc         *cri.LinuxContainerSecurityContext
	privileged bool
	spec       *specs.Spec
	warnings   []string
}

func newBuilder(in Input) (*builder, error) {
	if in.Config == nil {
		return nil, invalid("the container has no configuration")
	}
	if in.Config.GetWindows() != nil {
		return nil, invalid("the container is configured for Windows, podd runs Linux containers")
	}
	if in.Rootfs == "" {
		return nil, invalid("the container has no root filesystem")
	}
	sc := in.Config.GetLinux().GetSecurityContext()
	b := &builder{
		in: in, sc: sc, privileged: sc.GetPrivileged(),
		spec: &specs.Spec{
			Version: version(in.Handler.OCIVersion),
			Process: &specs.Process{Terminal: in.Config.GetTty(), NoNewPrivileges: sc.GetNoNewPrivs()},
			Root:    &specs.Root{Path: in.Rootfs, Readonly: sc.GetReadonlyRootfs()},
			Linux:   &specs.Linux{},
		},
	}
	return b, nil
}

func (b *builder) run(steps []step) (*specs.Spec, []string, error) {
	for _, s := range steps {
		if err := s.do(b); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	removeNewer(b.spec)
	return b.spec, b.warnings, nil
}

func (b *builder) warn(format string, args ...any) {
	b.warnings = append(b.warnings, fmt.Sprintf(format, args...))
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errdefs.ErrInvalidArgument, fmt.Sprintf(format, args...))
}

func unsupported(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errdefs.ErrFailedPrecondition, fmt.Sprintf(format, args...))
}

// checkText refuses text that config.json cannot carry to the kernel unchanged: JSON is UTF-8, the kernel's strings end
// at NUL.
func checkText(what, s string) error {
	if !utf8.ValidString(s) {
		return invalid("%s is not valid UTF-8, which config.json cannot carry", what)
	}
	if strings.ContainsRune(s, 0) {
		return invalid("%s contains a NUL byte", what)
	}
	return nil
}

// CheckTexts is checkText for every element of a list.
func CheckTexts(what string, list []string) error {
	for i, s := range list {
		if err := checkText(fmt.Sprintf("%s %d", what, i), s); err != nil {
			return err
		}
	}
	return nil
}

// joined reports whether a namespace is neither the node's nor a new one.
func joined(ns string) bool { return ns != "" && ns != Host }

// userns reports whether the container runs in its own or its pod's user namespace.
func (b *builder) userns() bool { return joined(b.in.Namespaces.User) }

func clone[T any](s []T) []T {
	if len(s) == 0 {
		return nil // an empty list and none are the same in config.json
	}
	return slices.Clone(s)
}
