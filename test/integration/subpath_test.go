package integration

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestSubPathRace: a pod changes a directory of its volume to a link and back all the time, while containers are made
// that mount it. As a subPath, which the kubelet has bound to a directory of its own, they get the volume's directory
// each time (CVE-2021-25741). The same path as a hostPath shows that the race is real: the CRI has links followed.
func TestSubPathRace(t *testing.T) {
	t.Parallel()
	k := start(t)
	volume, secret, bound := k.Path("volume"), k.Path("secret"), k.Path("volume-subpaths")
	for dir, text := range map[string]string{filepath.Join(volume, "sub"): "volume", secret: "host"} {
		k.ok("make "+dir, os.MkdirAll(dir, 0o755))
		k.ok("write a file", os.WriteFile(filepath.Join(dir, "whose"), []byte(text), 0o644))
	}
	link := filepath.Join(volume, "link")
	k.ok("make a link", os.Symlink(secret, link))
	k.ok("make the kubelet's directory", os.Mkdir(bound, 0o755))
	k.ok("bind the subPath", unix.Mount(filepath.Join(volume, "sub"), bound, "", unix.MS_BIND, ""))
	t.Cleanup(func() {
		if err := unix.Unmount(bound, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	t.Run("subPath", func(t *testing.T) {
		k := k.sub(t)
		defer exchange(t, filepath.Join(volume, "sub"), link)()
		for range 15 {
			if got, err := k.whose(bound); got != "volume" {
				t.Errorf("file in the container = %q, %v, want the volume's", got, err)
			}
		}
	})
	t.Run("hostPath", func(t *testing.T) {
		k := k.sub(t)
		defer exchange(t, filepath.Join(volume, "sub"), link)()
		for range 60 { // some creations fail: the path is no link any more when it is read
			if got, _ := k.whose(filepath.Join(volume, "sub")); got == "host" {
				return
			}
		}
		t.Error("no container of 60 got the link's directory, want one: the race of this test is not real")
	})
}

// whose returns the content of the file "whose" in a new container's volume.
func (k *kubelet) whose(hostPath string) (string, error) {
	k.Helper()
	pod, podCfg := k.pod(func(c *cri.PodSandboxConfig) {
		c.Linux.SecurityContext.NamespaceOptions.Network = cri.NamespaceMode_NODE
	})
	defer k.removePod(pod)
	cfg := k.containerConfig([]string{"cat", "/volume/whose"}, func(c *cri.ContainerConfig) {
		c.Mounts = []*cri.Mount{{HostPath: hostPath, ContainerPath: "/volume"}}
	})
	id, err := k.tryCreate(pod, cfg, podCfg)
	if err != nil {
		return "", err
	}
	k.startContainer(id)
	k.exited(id)
	return strings.TrimSpace(k.logText(podCfg, cfg)), nil
}

// exchange swaps two paths all the time until the returned function is called.
func exchange(t *testing.T, a, b string) (stop func()) {
	end := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-end:
				return
			default:
			}
			if err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE); err != nil {
				t.Errorf("exchange: %v", err)
				return
			}
		}
	})
	return func() { close(end); wg.Wait() }
}
