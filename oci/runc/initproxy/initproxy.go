// Package initproxy carries the init proxy and installs it. conmon watches the init proxy instead of a container that
// has no process on the host because it runs in its own kernel (see initproxy.c).
//
// The package only writes one file. The daemon calls it once at start.
package initproxy

import (
	"embed"
	"path/filepath"

	"github.com/podd-project/podd/oci/program"
)

// files holds bin/initproxy.gz if it was built. bin always holds a README, so that podd builds without a C compiler.
//
//go:embed all:bin
var files embed.FS

// Install writes the program into dir and returns its absolute path; see program.Install.
func Install(dir string) (string, error) {
	return program.Install(files, filepath.Join(dir, "initproxy"), 0o500)
}
