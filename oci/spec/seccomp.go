package spec

import (
	"slices"
	"strings"

	"github.com/moby/profiles/seccomp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// SeccompRequest returns the seccomp profile that a security context requests: profile, or the one that the deprecated
// path names if profile is nil. Nil means unconfined, the CRI's default. Load a Localhost profile with
// host.SeccompProfile and pass it in Input.Seccomp.
func SeccompRequest(profile *cri.SecurityProfile, deprecated string) (*cri.SecurityProfile, error) {
	if profile != nil {
		return profile, nil
	}
	switch deprecated {
	case "", "unconfined":
		return nil, nil
	case "runtime/default", "docker/default":
		return &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault}, nil
	}
	if ref, ok := strings.CutPrefix(deprecated, localhostPrefix); ok && ref != "" {
		return &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost, LocalhostRef: ref}, nil
	}
	return nil, invalid("unknown seccomp profile %q", deprecated)
}

const localhostPrefix = "localhost/"

// seccomp sets the profile. A privileged container has none, whatever it requests, as the CRI demands and critest
// checks.
//
// RuntimeDefault has no rules for x32 where no program can use them: they are a third of the filter, which runc
// compiles for each container and each exec. A system call of x32 then ends its thread instead of returning ENOSYS.
func (b *builder) seccomp() error {
	//lint:ignore SA1019 old kubelets set it
	p, err := SeccompRequest(b.sc.GetSeccomp(), b.sc.GetSeccompProfilePath())
	if err != nil {
		return err
	}
	if b.privileged || p == nil || p.GetProfileType() == cri.SecurityProfile_Unconfined {
		return nil
	}
	if !b.in.Host.Seccomp {
		return unsupported("the profile %s is requested, this kernel has no seccomp", p.GetProfileType())
	}
	switch p.GetProfileType() {
	case cri.SecurityProfile_RuntimeDefault:
		s := filterRules(seccomp.DefaultProfile(), b.spec.Process.Capabilities.Bounding, b.in.Host)
		if b.in.Host.NoX32 && !b.in.Handler.OwnKernel {
			s.Architectures = slices.DeleteFunc(s.Architectures, func(a specs.Arch) bool { return a == specs.ArchX32 })
		}
		b.spec.Linux.Seccomp = s
	case cri.SecurityProfile_Localhost:
		if b.in.Seccomp == nil {
			return invalid("the profile %q was not loaded", p.GetLocalhostRef())
		}
		b.spec.Linux.Seccomp = filterRules(b.in.Seccomp, b.spec.Process.Capabilities.Bounding, b.in.Host)
	default:
		return invalid("unknown profile type %v", p.GetProfileType())
	}
	if b.in.Handler.OwnKernel {
		traceMissingCalls(b.spec.Linux.Seccomp)
	}
	return nil
}

// traceMissingCalls changes the rules that return ENOSYS to ones for a tracer: without one the kernel returns ENOSYS.
// gVisor ignores the number of an error and returns EPERM, with which glibc starts no thread (clone3). A tracer in the
// container could make such a call succeed, but only in the pod's own kernel.
func traceMissingCalls(s *specs.LinuxSeccomp) {
	missing := func(a specs.LinuxSeccompAction, errno *uint) bool {
		return a == specs.ActErrno && errno != nil && *errno == uint(unix.ENOSYS)
	}
	if missing(s.DefaultAction, s.DefaultErrnoRet) {
		s.DefaultAction, s.DefaultErrnoRet = specs.ActTrace, nil
	}
	for i, rule := range s.Syscalls {
		if missing(rule.Action, rule.ErrnoRet) {
			s.Syscalls[i].Action, s.Syscalls[i].ErrnoRet = specs.ActTrace, nil
		}
	}
}

// filterRules returns the rules of a profile that hold for these capabilities on this machine. The function that the
// library has for it queries the running kernel; this one is pure.
func filterRules(profile *seccomp.Seccomp, caps []string, f Facts) *specs.LinuxSeccomp {
	out := profile.LinuxSeccomp
	if len(profile.ArchMap) > 0 {
		out.Architectures = architectures(profile.ArchMap, f.Arch)
	}
	out.Syscalls = nil
	for _, call := range profile.Syscalls {
		if call == nil || !includes(call.Includes, caps, f) || excludes(call.Excludes, caps, f) {
			continue
		}
		rule := call.LinuxSyscall
		//lint:ignore SA1019 profiles were written so before 2016
		if name := call.Name; name != "" {
			rule.Names = []string{name}
		}
		out.Syscalls = append(out.Syscalls, rule)
	}
	return &out
}

func architectures(known []seccomp.Architecture, goarch string) []specs.Arch {
	native := map[string]specs.Arch{
		"amd64": specs.ArchX86_64, "arm64": specs.ArchAARCH64, "s390x": specs.ArchS390X, "riscv64": specs.ArchRISCV64,
		"loong64": specs.ArchLOONGARCH64, "mips64": specs.ArchMIPS64, "mips64le": specs.ArchMIPSEL64,
	}[goarch]
	for _, a := range known {
		if a.Arch == native {
			return append([]specs.Arch{a.Arch}, a.SubArches...)
		}
	}
	return nil // the runtime filters for its own architecture
}

// includes reports whether every condition holds: on one of the architectures, with all capabilities, on such a kernel.
func includes(c *seccomp.Filter, caps []string, f Facts) bool {
	if c == nil {
		return true
	}
	for _, want := range c.Caps {
		if !slices.Contains(caps, want) {
			return false
		}
	}
	return (len(c.Arches) == 0 || slices.Contains(c.Arches, f.Arch)) &&
		(c.MinKernel == nil || f.Kernel.atLeast(c.MinKernel))
}

// excludes reports whether any condition holds.
func excludes(c *seccomp.Filter, caps []string, f Facts) bool {
	if c == nil {
		return false
	}
	held := func(want string) bool { return slices.Contains(caps, want) }
	return slices.ContainsFunc(c.Caps, held) || slices.Contains(c.Arches, f.Arch) ||
		c.MinKernel != nil && f.Kernel.atLeast(c.MinKernel)
}

func (k KernelVersion) atLeast(min *seccomp.KernelVersion) bool {
	major, minor := uint64(max(k.Major, 0)), uint64(max(k.Minor, 0))
	return major > min.Kernel || major == min.Kernel && minor >= min.Major
}
