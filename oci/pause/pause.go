// Package pause carries podd's own pause program, the first process of pods that share a PID namespace, and
// installs it as a root filesystem. It needs no image, so nothing is pulled and nothing can be collected.
//
// It writes one directory and knows of nothing else. The sandbox engine's wiring calls it once at start.
package pause

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"

	"github.com/podd-project/podd/oci/program"
)

// files holds bin/pause.gz if it was built; bin always holds a README, so that podd builds without a C compiler.
//
//go:embed all:bin
var files embed.FS

// Install makes dir a root filesystem that holds the program as /pause, and returns dir's absolute path; see
// program.Install. Mount points that a runtime needs in a read-only root are made too. Everyone can read all of it:
// runc opens the mount points as the root of a user namespace, gVisor loads the program as the container's user.
func Install(dir string) (rootfs string, err error) {
	path, err := program.Install(files, filepath.Join(dir, "pause"), 0o555)
	if err != nil {
		return "", err
	}
	rootfs = filepath.Dir(path)
	for _, d := range []string{"dev", "proc", "sys", "etc"} {
		if err := os.MkdirAll(filepath.Join(rootfs, d), 0o755); err != nil {
			return "", fmt.Errorf("install pause: %w", err)
		}
	}
	return rootfs, nil
}
