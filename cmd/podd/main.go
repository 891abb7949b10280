// Command podd is the pod daemon: a CRI runtime server.
//
// This package is the command line: a file for each command, which calls the daemon or its admin API, or works without
// it, and prints. No package imports it.
package main

import (
	"os"

	"github.com/podd-project/podd/image"
)

func main() {
	// The image store runs this binary to pull images and unpack layers. Such a process must not parse flags.
	if image.Init() {
		return
	}
	os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
}
