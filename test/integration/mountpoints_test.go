package integration

import (
	"os"
	"slices"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/images"
)

// TestMountPoints runs images in which /dev, /proc, /sys or /etc is a link to a directory of the host, or a file. No
// runtime may follow the link on the host (CVE-2026-47766, CVE-2026-41579, CVE-2023-27561), and the container has real
// ones.
func TestMountPoints(t *testing.T) {
	t.Parallel()
	k := start(t)
	k.ok("remove what a killed test left", os.RemoveAll(images.Elsewhere))
	k.ok("make the directory that the links name", os.Mkdir(images.Elsewhere, 0o755))
	t.Cleanup(func() { os.RemoveAll(images.Elsewhere) })
	mapping := []*cri.IDMapping{{HostId: 100000, Length: 65536}}
	mapped := &cri.UserNamespace{Mode: cri.NamespaceMode_POD, Uids: mapping, Gids: mapping}
	for _, c := range []struct {
		name, handler string
		userns        *cri.UserNamespace
	}{
		{"runc", "runc", nil},
		{"runc in a user namespace", "runc", mapped},
		{"crun", "crun", nil},
		{"gvisor", "gvisor", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := k.sub(t)
			cfg := k.podConfig(func(p *cri.PodSandboxConfig) {
				p.Linux.SecurityContext.NamespaceOptions.UsernsOptions = c.userns
			})
			pod := k.runPod(cfg, c.handler)
			for _, image := range []string{"dev-link", "proc-link", "sys-link", "dev-file", "etc-link", "etc-files"} {
				k.mountPoints(pod, cfg, "docker.io/hostile/"+image+":latest", c.userns)
			}
		})
	}
}

// mountPoints runs the image, which must find real /dev, /proc and /sys, and the pod's files in /etc, and change
// nothing on the host.
func (k *kubelet) mountPoints(pod string, podCfg *cri.PodSandboxConfig, image string, userns *cri.UserNamespace) {
	k.Helper()
	marker := images.Elsewhere + "/ptmx" // CVE-2026-41579 deletes it
	k.ok("write a file of the host", os.WriteFile(marker, []byte("host"), 0o600))
	k.have(image)
	cfg := k.containerConfig([]string{"sleep", "1000"}, func(c *cri.ContainerConfig) {
		c.Image = &cri.ImageSpec{Image: image}
		c.Linux.SecurityContext.NamespaceOptions.UsernsOptions = userns
	})
	id, err := k.tryCreate(pod, cfg, podCfg)
	if err == nil {
		k.startContainer(id)
		want := "character special file\ndirectory\ndirectory\nlocalhost\n"
		got := k.exec(id, `stat -c %F /dev/null /proc/1 /sys/kernel; grep -o -m1 localhost /etc/hosts`)
		if got != want {
			k.Errorf("%s: kinds of files in the container = %q, want %q", image, got, want)
		}
		k.stopContainer(id, 0)
		k.removeContainer(id)
	} else {
		k.Errorf("%s: CreateContainer = %v, want success", image, err)
	}
	entries, err := os.ReadDir(images.Elsewhere)
	k.ok("list the host's directory", err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
		if e.Name() != "ptmx" {
			k.ok("remove it", os.RemoveAll(images.Elsewhere+"/"+e.Name()))
		}
	}
	data, err := os.ReadFile(marker)
	if !slices.Equal(names, []string{"ptmx"}) || err != nil || string(data) != "host" {
		k.Errorf("%s: files in the host's directory = %s, ptmx %q, %v, want ptmx alone, unchanged", image,
			strings.Join(names, " "), data, err)
	}
}
