// Package namespaces creates the Linux namespaces of a pod without a process that holds them: each is pinned by a bind
// mount of its /proc/<pid>/ns file and can be joined by path.
//
// It owns the pin files whose paths it is passed, and nothing else. Only the sandbox engine may call it. A PID
// namespace cannot be pinned, because it ends with its first process; pods that share one have an infra container
// instead.
//
// A thread, not a process, is in a namespace. Everything here runs on an OS thread that ends afterwards, so no other
// goroutine ever runs in a pod's namespace.
package namespaces

import specs "github.com/opencontainers/runtime-spec/specs-go"

// Request lists the namespaces to create and where to pin each. An empty path means: do not create it.
type Request struct {
	// Net, IPC, UTS and User are absolute paths of the pin files. Leftovers of a crash are removed first. Their
	// directory is created (0700) and stays.
	Net, IPC, UTS, User string
	// Claim is set if Net is in a directory that other programs use, too: the absolute path of a symbolic link to Net,
	// in a directory of the caller's own. The link is what tells the caller's pin files from others'; Pin makes it first,
	// and the caller removes it after Unpin. Net's directory is then created 0755, and made a shared mount.
	Claim string
	// UIDs and GIDs map the user namespace; they are required with User and refused without it. The other
	// namespaces are then created in the user namespace, which owns them.
	UIDs, GIDs []specs.LinuxIDMapping
	// Hostname is set in the UTS namespace; empty leaves the node's name in it.
	Hostname string
	// Sysctls are written in the new namespaces. Only namespaced keys are accepted, and only if this request creates
	// their namespace: sysctls of a host namespace are refused (CVE-2022-0532). Keys of a network interface that does
	// not exist yet are skipped, see Pinner.Sysctl.
	Sysctls map[string]string
}
