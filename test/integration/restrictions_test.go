package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/podd-project/podd/test/sample"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestMountRestrictions: what the node has mounted read-only, nosuid, nodev and noexec stays so in containers of every
// handler, whatever the pod asks for. The status tells what was asked.
func TestMountRestrictions(t *testing.T) {
	t.Parallel()
	k := start(t, runcShim()...)
	const locked = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	source := k.Path("locked")
	k.ok("make a directory", os.Mkdir(source, 0o755))
	k.ok("mount", unix.Mount("podd-test", source, "tmpfs", locked, "size=1m"))
	t.Cleanup(func() { _ = unix.Unmount(source, unix.MNT_DETACH) })
	k.ok("write a program", os.WriteFile(filepath.Join(source, "program"), []byte("#!/bin/sh\necho ran\n"), 0o755))
	k.ok("make it read-only", unix.Mount("", source, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|locked, ""))
	for _, handler := range sample.Some(t, "runc", "crun", "runc-shim", "gvisor", "gvisor-shim", "vm") {
		t.Run(handler, func(t *testing.T) {
			k := k.sub(t)
			podCfg := k.podConfig()
			pod := k.runPod(podCfg, handler)
			for name, m := range map[string]*cri.Mount{
				"plain":        {},
				"file":         {HostPath: filepath.Join(source, "program"), ContainerPath: "/volume/program"},
				"readonly":     {Readonly: true},
				"mountOptions": {MountOptions: []string{"nosuid"}},
			} {
				if m.HostPath == "" {
					m.HostPath, m.ContainerPath = source, "/volume"
				}
				out, _ := k.outputIn(pod, podCfg,
					"/volume/program; echo x >/volume/program; grep ' "+m.ContainerPath+" ' /proc/mounts",
					func(c *cri.ContainerConfig) { c.Mounts = []*cri.Mount{m} })
				if strings.Contains(out, "ran\n") {
					t.Errorf("%s: a program of a noexec mount ran: %q", name, out)
				}
				for _, flag := range []string{"ro", "nosuid", "nodev", "noexec"} {
					own := strings.HasPrefix(handler, "gvisor") // it shows only ro and noexec
					if !own && !strings.Contains(strings.ReplaceAll(out, " ", ","), ","+flag+",") {
						t.Errorf("%s: mount = %q, want %s", name, out, flag)
					}
				}
				if data, err := os.ReadFile(filepath.Join(source, "program")); err != nil || string(data) == "x\n" {
					t.Fatalf("%s: program = %q, %v, want it not written to", name, data, err)
				}
			}
		})
	}
}
