package shim

import (
	"embed"
	"path/filepath"

	"github.com/podd-project/podd/oci/program"
)

// files holds bin/keeper.gz if it was built; bin always holds a README, so that podd builds without it.
//
//go:embed all:bin
var files embed.FS

// InstallStdio writes the stdio program into dir, under the name that earlier versions look for, and returns its path;
// see program.Install.
func InstallStdio(dir string) (string, error) {
	return program.Install(files, filepath.Join(dir, "keeper"), 0o500)
}
