package shim

import (
	"embed"
	"path/filepath"

	"github.com/podd-project/podd/oci/program"
)

// files holds bin/stdio.gz if it was built; bin always holds a README, so that podd builds without it.
//
//go:embed all:bin
var files embed.FS

// stdioName is the name of the stdio program, by which its processes are found.
const stdioName = "stdio"

// InstallStdio writes the stdio program into dir and returns its path; see program.Install.
func InstallStdio(dir string) (string, error) {
	return program.Install(files, filepath.Join(dir, stdioName), 0o500)
}
