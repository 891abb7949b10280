package integration

import (
	"os"
	"testing"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestWorkloads runs what charts and kubectl send to every node.
func TestWorkloads(t *testing.T) {
	t.Parallel()
	k := start(t)
	for _, c := range []struct {
		name string
		test func(*kubelet)
	}{
		{"missing host path", missingHostPath},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(k.sub(t)) })
	}
}

func hostMount(path string) func(*cri.ContainerConfig) {
	return func(c *cri.ContainerConfig) {
		c.Mounts = append(c.Mounts, &cri.Mount{HostPath: path, ContainerPath: "/volume"})
	}
}

func missingHostPath(k *kubelet) {
	path := k.Path("run/flannel")
	if out, exit := k.output("touch /volume/subnet.env && stat -c '%u %a' /volume", hostMount(path)); exit != 0 || out != "0 755\n" {
		k.Errorf("exit code = %d, output = %q, want 0, owner 0 and mode 755", exit, out)
	}
	if _, err := os.Stat(path + "/subnet.env"); err != nil {
		k.Errorf("the container's file is not on the host: %v", err)
	}
	link := k.Path("dangling")
	k.ok("make a link", os.Symlink(k.Path("nowhere"), link))
	pod, podCfg := k.pod()
	_, err := k.tryCreate(pod, k.containerConfig([]string{"true"}, hostMount(link+"/x")), podCfg)
	k.refused("a path below a dangling link", err, "dangling/x", codes.NotFound)
	if _, err := os.Lstat(k.Path("nowhere")); err == nil {
		k.Errorf("%s was created through a link", k.Path("nowhere"))
	}
}

func TestMissingHostPathIsRefused(t *testing.T) {
	t.Parallel()
	k := start(t, `runtime.create_missing_host_paths=false`)
	pod, podCfg := k.pod()
	path := k.Path("none")
	_, err := k.tryCreate(pod, k.containerConfig([]string{"true"}, hostMount(path)), podCfg)
	k.refused("a host path that does not exist", err, path, codes.NotFound)
	if _, err := os.Lstat(path); err == nil {
		k.Errorf("%s was created", path)
	}
}
