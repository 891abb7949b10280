// Package standin carries podd's stand-in program, the process that a monitor watches in place of a container that
// has none on the host because it runs under a kernel of its own (see standin.c), and installs it.
//
// It writes one file and knows of nothing else. The sandbox engine's wiring calls it once at start.
package initproxy

import (
	"embed"
	"path/filepath"

	"github.com/podd-project/podd/oci/program"
)

// files holds bin/standin if it was built; bin always holds a README, so that podd builds without a C compiler.
//
//go:embed all:bin
var files embed.FS

// Install writes the program into dir and returns its absolute path; see program.Install.
func Install(dir string) (string, error) {
	return program.Install(files, filepath.Join(dir, "standin"), 0o555)
}
