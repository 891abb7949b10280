package integration

import (
	"os"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestSameOnEveryHandler: programs find the same under every handler.
func TestSameOnEveryHandler(t *testing.T) {
	t.Parallel()
	k := start(t, runcShim()...)
	volume := k.Path("volume")
	k.ok("make a directory", os.MkdirAll(volume, 0o755))
	k.ok("make a file", os.WriteFile(volume+"/file", nil, 0o644))
	for _, handler := range []string{"runc", "crun", "runc-shim", "gvisor", "gvisor-shim", "vm"} {
		t.Run(handler, func(t *testing.T) {
			k := k.sub(t)
			podCfg := k.podConfig(func(c *cri.PodSandboxConfig) { c.Linux.SecurityContext.Privileged = true })
			pod := k.runPod(podCfg, handler)
			for name, c := range map[string]struct {
				script, want string
				change       func(*cri.ContainerConfig)
			}{
				"home of a uid that passwd does not have": {"echo $HOME", "/\n", func(c *cri.ContainerConfig) {
					c.Linux.SecurityContext.RunAsUser = &cri.Int64Value{Value: 4242}
				}},
				// crun adds the sticky bit
				"parents of mount points": {"stat -c %a /a /a/b /c /c/d | sed s/^1//", strings.Repeat("755\n", 4),
					func(c *cri.ContainerConfig) {
						c.Mounts = []*cri.Mount{
							{HostPath: volume, ContainerPath: "/a/b/volume"}, {HostPath: volume + "/file", ContainerPath: "/c/d/file"},
						}
					}},
				"devices of a privileged container": {"ls /dev/fuse /dev/net/tun", "/dev/fuse\n/dev/net/tun\n",
					func(c *cri.ContainerConfig) { c.Linux.SecurityContext.Privileged = true }},
			} {
				if out, code := k.outputIn(pod, podCfg, c.script, c.change); code != 0 || out != c.want {
					t.Errorf("%s: exit code = %d, output = %q, want 0 and %q", name, code, out, c.want)
				}
			}
		})
	}
}
