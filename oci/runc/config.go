// Package runc drives OCI runtimes (runc, crun, runsc) by container id, with conmon as the monitor of each container.
//
// It owns <run>/containers/<id>/ (bundle, pid files, exit file, attach socket) and the runtime's state directory. It
// knows no pod, image or network. The sandbox engine calls it through oci.Runtime.
package runc

import "time"

// Config configures a runtime handler of type "oci".
type Config struct {
	// Name is the RuntimeClass handler name.
	Name string
	// Path of the runtime binary, or its bare name, looked up in SearchPath.
	Path string
	// SearchPath lists the directories that are searched for bare names.
	SearchPath []string
	// Root is the runtime's own state directory (--root).
	Root string
	// RunDir holds one directory per container: <RunDir>/<id>.
	RunDir string
	// Conmon is the monitor's binary, path or bare name.
	Conmon string
	// CRIU is the program with which containers are checkpointed, path or bare name. Its file name must be criu,
	// because runtimes look for that. Empty: containers cannot be checkpointed.
	CRIU string
	// SystemdCgroup chooses the systemd cgroup driver.
	SystemdCgroup bool
	// ExecCgroups gives each command a cgroup with the id of its CRI call in the name, not only those with a timeout.
	ExecCgroups bool
	// Options are further global flags of the runtime, by name: {"platform": "systrap"} is --platform=systrap.
	Options map[string]string
	// InitProxy is the path of the init proxy, which runtimes with their own kernel need (see oci/runc/initproxy).
	// Empty: they cannot be used.
	InitProxy string
	// Thaw is the path of the program that thaws containers (see oci/runc/thaw). Empty: containers cannot be
	// checkpointed.
	Thaw string
	// Starter is the path of the program that starts containers (see oci/runc/starter). Empty: the runtime starts them.
	Starter string
	// CreateTimeout bounds one Create; 0 means one minute.
	CreateTimeout time.Duration
}
