// Package namespaces creates the Linux namespaces of a pod without keeping a process alive for
// them: each is pinned by a bind mount of its /proc/<pid>/ns file and can be joined by path.
//
// It owns the pin files it is told the paths of, and nothing else. It may be called by the sandbox
// engine only. A PID namespace cannot be pinned (it dies with its first process); pods that share one
// have an infra container instead.
//
// Namespaces belong to a thread, not to a process, so everything here happens on an operating system
// thread of its own that is thrown away afterwards: no other goroutine ever runs in a pod's namespace.
package namespaces

import specs "github.com/opencontainers/runtime-spec/specs-go"

// Request names the namespaces to create and where to pin each. An empty path means: do not create it.
type Request struct {
	// Net, IPC, UTS and User are absolute paths of the pin files. What a crash left there is removed first. Their
	// directory is created (0700) and stays.
	Net, IPC, UTS, User string
	// UIDs and GIDs map the user namespace; they are needed with User and refused without it. The other
	// namespaces are then created inside the user namespace, so that they are owned by it.
	UIDs, GIDs []specs.LinuxIDMapping
	// Hostname is set in the UTS namespace; empty leaves the node's name in it.
	Hostname string
	// Sysctls are written inside the new namespaces. Only namespaced keys are accepted, and only those whose
	// namespace is created by this request (spec: sysctls of a host namespace are refused, CVE-2022-0532).
	// Keys of a network interface that does not exist yet are left for Pinner.Sysctl.
	Sysctls map[string]string
}
