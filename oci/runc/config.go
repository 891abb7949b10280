// Package runc drives an OCI runtime (runc, crun, runsc) by container id, with conmon as the monitor of each container.
//
// It owns <run>/containers/<id>/ (bundle, pid files, exit file, attach socket) and the runtime's state
// directory. It knows nothing of pods, images, networks or CRI: it is given a bundle and an id. The sandbox
// engine is its only caller. Every verb but Create, Start and Exec is idempotent and can be repeated after
// a crash; Wait works for a container that an earlier daemon started.
package runc

import "time"

// Config configures a runtime handler of type "oci".
type Config struct {
	// Name is the RuntimeClass handler name.
	Name string
	// Path of the runtime binary, or its bare name, looked up in SearchPath.
	Path string
	// SearchPath lists the directories that are searched for bare names of the runtime and of conmon.
	SearchPath []string
	// Root is the runtime's own state directory (--root).
	Root string
	// RunDir holds one directory per container: <RunDir>/<id>.
	RunDir string
	// Conmon is the monitor's binary, path or bare name.
	Conmon string
	// SystemdCgroup chooses the systemd cgroup driver.
	SystemdCgroup bool
	// Options are further global flags of the runtime, by name: {"platform": "systrap"} is --platform=systrap.
	Options map[string]string
	// StandIn is the path of podd's stand-in program (see oci/runc/initproxy), which runtimes with a kernel of their own
	// need; empty: they cannot be used.
	InitProxy string
	// CreateTimeout bounds one Create; 0 means one minute.
	CreateTimeout time.Duration
}
