// Command podd is the pod daemon: a CRI runtime server.
//
// This package wires the others together and owns the parts of the process: the command line, the configuration file,
// the lock of the state directories, the socket, signals and the service manager. It knows nothing of pods. No package
// imports it.
package main

import (
	"os"

	"github.com/podd-project/podd/image"
)

// version and commit are set by the linker (-X main.version=... -X main.commit=...).
var version, commit = "dev", ""

func main() {
	// The image store runs this binary to pull images and unpack layers. Such a process must not parse flags.
	if image.Init() {
		return
	}
	os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
}
