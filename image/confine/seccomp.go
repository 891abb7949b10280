package confine

import (
	"fmt"
	"slices"

	"github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	profiles "github.com/moby/profiles/seccomp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// profileCapabilities are the capabilities for which the profile of containers allows further system calls.
// CAP_SYS_ADMIN is not among them, though a pull has it: the kernel demands it for the attribute trusted.overlay.opaque
// of directories. What else it permits (mount, setns, bpf ...) stays forbidden.
var profileCapabilities = []string{"CAP_SYS_CHROOT"}

// neverAllowed are system calls that the profile allows to containers, and that no pull needs.
//
// Sockets and madvise have rules of their own (see ownRules). With CAP_SYS_ADMIN ioctl can freeze a file system, or
// shut it down, and shared memory and queues of other programs can be removed. No limit of a process counts the memory
// of memfd_create.
var neverAllowed = []string{
	"socket", "socketpair", "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise",
	"keyctl", "add_key", "request_key", "ioctl", "madvise", "memfd_create", "memfd_secret",
	"shmget", "shmat", "shmctl", "shmdt", "semget", "semop", "semctl", "semtimedop",
	"msgget", "msgsnd", "msgrcv", "msgctl",
	"mq_open", "mq_unlink", "mq_timedsend", "mq_timedreceive", "mq_notify", "mq_getsetattr",
}

// networkFamilies are the families of sockets that a pull needs. Not AF_UNIX: the process is root, so that D-Bus, podd
// and other services would do for it what its capabilities do not allow; Landlock does not forbid to connect before
// its version 9.
var networkFamilies = []uint64{unix.AF_INET, unix.AF_INET6}

// filterSystemCalls allows the calls of the default profile of containers; the rest fails with EPERM, which the Go
// runtime survives. It sets no_new_privs, as the kernel demands.
func (p Policy) filterSystemCalls() error {
	policy, err := systemCalls(p.Offline)
	if err != nil {
		return fmt.Errorf("filter system calls: %w", err)
	}
	if err := seccomp.LoadFilter(seccomp.Filter{NoNewPrivs: true, Policy: policy}); err != nil {
		return fmt.Errorf("filter system calls: %w", err)
	}
	return nil
}

// DenyNetwork makes socket(2) fail in the calling process, in all threads, for good.
func DenyNetwork() error {
	err := seccomp.LoadFilter(seccomp.Filter{
		NoNewPrivs: true, Flag: seccomp.FilterFlagTSync,
		Policy: seccomp.Policy{
			DefaultAction: seccomp.ActionAllow,
			Syscalls:      []seccomp.SyscallGroup{{Names: []string{"socket"}, Action: seccomp.ActionErrno}},
		},
	})
	if err != nil {
		return fmt.Errorf("deny the network: %w", err)
	}
	return nil
}

// systemCalls converts the profile of containers. A rule that cannot be expressed is left out: its calls are forbidden.
func systemCalls(offline bool) (seccomp.Policy, error) {
	profile, err := profiles.GetDefaultProfile(&specs.Spec{Process: &specs.Process{
		Capabilities: &specs.LinuxCapabilities{Bounding: profileCapabilities},
	}})
	if err != nil {
		return seccomp.Policy{}, err
	}
	machine, err := arch.GetInfo("")
	if err != nil {
		return seccomp.Policy{}, err
	}
	group := seccomp.SyscallGroup{Action: seccomp.ActionAllow}
	for _, rule := range profile.Syscalls {
		if rule.Action != specs.ActAllow {
			continue
		}
		for _, name := range rule.Names {
			_, known := machine.SyscallNames[name]
			if !known || slices.Contains(neverAllowed, name) || slices.Contains(group.Names, name) {
				continue
			}
			if len(rule.Args) == 0 {
				group.Names = append(group.Names, name)
				continue
			}
			if conditions, ok := convert(rule.Args); ok {
				group.NamesWithCondtions = append(group.NamesWithCondtions,
					seccomp.NameWithConditions{Name: name, Conditions: conditions})
			}
		}
	}
	group.NamesWithCondtions = append(group.NamesWithCondtions, ownRules(offline)...)
	// The flags of clone3 are out of a filter's reach. Without it, the C library of a program with cgo uses clone.
	absent := seccomp.SyscallGroup{Names: []string{"clone3"}, Action: seccomp.ActionErrno | seccomp.Action(unix.ENOSYS)}
	return seccomp.Policy{
		DefaultAction: seccomp.ActionErrno, Syscalls: []seccomp.SyscallGroup{group, absent},
	}, nil
}

// ownRules returns the rules for sockets and madvise. From MADV_HWPOISON on, madvise takes memory of the node out
// of use, which CAP_SYS_ADMIN permits.
func ownRules(offline bool) []seccomp.NameWithConditions {
	rules := []seccomp.NameWithConditions{{
		Name:       "madvise",
		Conditions: seccomp.ArgumentConditions{{Argument: 2, Operation: seccomp.LessThan, Value: unix.MADV_HWPOISON}},
	}}
	if offline {
		return rules
	}
	for _, family := range networkFamilies {
		rules = append(rules, seccomp.NameWithConditions{
			Name:       "socket",
			Conditions: seccomp.ArgumentConditions{{Argument: 0, Operation: seccomp.Equal, Value: family}},
		})
	}
	return rules
}

// convert returns false if an argument's condition is one that the profile does not use.
func convert(args []specs.LinuxSeccompArg) (seccomp.ArgumentConditions, bool) {
	var out seccomp.ArgumentConditions
	for _, a := range args {
		var operation seccomp.Operation
		switch {
		case a.Op == specs.OpEqualTo:
			operation = seccomp.Equal
		case a.Op == specs.OpNotEqual:
			operation = seccomp.NotEqual
		case a.Op == specs.OpLessThan:
			operation = seccomp.LessThan
		case a.Op == specs.OpGreaterThan:
			operation = seccomp.GreaterThan
		case a.Op == specs.OpMaskedEqual && a.ValueTwo == 0:
			operation = seccomp.BitsNotSet
		default:
			return nil, false
		}
		out = append(out, seccomp.Condition{Argument: uint32(a.Index), Operation: operation, Value: a.Value})
	}
	return out, true
}
