// Command podd is the pod daemon: a CRI runtime server.
//
// This package wires the others together and owns what belongs to the process rather than to pods: the
// command line, the configuration file, the state directory's lock, the socket, signals and the service
// manager. It holds no knowledge of pods. Nothing imports it.
package main

import (
	"os"

	"go.podman.io/storage/pkg/reexec"
)

// version and commit are set by the linker (-X main.version=... -X main.commit=...).
var version, commit = "dev", ""

func main() {
	// containers/storage starts this binary again to unpack layers inside a chroot; such a process must do
	// that and nothing else, before any flag is looked at.
	if reexec.Init() {
		return
	}
	os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
}
