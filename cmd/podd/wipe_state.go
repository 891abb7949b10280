package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/podd-project/podd/cmd/podd/settings"
	"github.com/podd-project/podd/cmd/podd/state"
	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/oci/spec"
	"github.com/podd-project/podd/oci/spec/host"
	"github.com/podd-project/podd/oci/subprocess"
)

const (
	// systemctlTimeout bounds the wait for systemd.
	systemctlTimeout = 30 * time.Second
	// maxSystemctlOutput is the number of bytes of an error of systemctl that are kept.
	maxSystemctlOutput = 4 << 10
)

// removeState removes podd's directories after all pods and images: locks, embedded programs, the image store's own
// files; and its slice and AppArmor profile. It keeps the files in image.preload_dir.
func removeState(ctx context.Context, l *settings.Loaded) error {
	for _, dir := range []string{l.Run, l.Root} {
		keep := ""
		if rel, err := filepath.Rel(dir, l.Image.PreloadDir); err == nil && hasFiles(l.Image.PreloadDir) {
			keep, _, _ = strings.Cut(rel, "/")
		}
		if err := state.RemoveDir(dir, keep); err != nil {
			return fmt.Errorf("remove %s: %w", dir, err)
		}
	}
	if err := state.RemoveSocket(l.NRI.Socket); err != nil {
		return fmt.Errorf("NRI plugins: %w", err)
	}
	_ = os.Remove(l.Network.NetnsDir) // fails if other programs have namespaces there
	if l.Run != settings.Default().Run {
		return nil // another podd on this machine may use the rest
	}
	return errors.Join(stopSlice(ctx), host.UnloadAppArmor())
}

// stopSlice makes systemd stop the slice of pods without a cgroup parent, which it otherwise keeps, empty, until the
// next boot. A slice that is not empty is another podd's.
func stopSlice(ctx context.Context) error {
	if !settings.UseSystemdCgroup(settings.CgroupAuto) {
		return nil
	}
	slice := spec.DefaultCgroup + ".slice"
	children, err := cgroups.Children("/" + slice)
	if err != nil || len(children) > 0 || len(cgroups.DirsAt(slice)) == 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, systemctlTimeout)
	defer cancel()
	if _, stderr, err := subprocess.Run(ctx, exec.Command("systemctl", "stop", slice), maxSystemctlOutput); err != nil {
		return fmt.Errorf("systemctl stop %s: %w: %s", slice, err, bytes.TrimSpace(stderr))
	}
	return nil
}

func hasFiles(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && len(entries) > 0
}
