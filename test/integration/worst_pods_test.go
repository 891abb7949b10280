package integration

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Bounds of podd while authors of pods fill the fields of requests, in MiB.
const (
	maxMemory       = 400
	maxRunDirectory = 150
)

// TestWorstPods: authors of pods fill each field that podd keeps, in as many pods and containers as they get, and send
// requests that are refused. Every list and status answers, memory and run directory stay bounded, a pod of another
// author starts, and all can be removed, also after a restart.
func TestWorstPods(t *testing.T) {
	t.Parallel()
	k := start(t)
	pods := k.fillLists()
	k.fillConfigurations(pods)
	k.sendHugeRequests(pods[0])
	k.checkService(pods)
	k.ok("restart", k.Restart(k.ctx(), k.Kill9))
	k.checkService(pods)
	for _, id := range pods {
		k.removePod(id)
	}
	for _, name := range []string{"lists and statuses", "configurations"} {
		if used := k.budget(name).InUse; used != 0 {
			t.Errorf("budget %q: %d in use without pods, want 0", name, used)
		}
	}
}

// fillLists makes pods with large annotations until the budget of lists is used up.
func (k *kubelet) fillLists() (pods []string) {
	k.Helper()
	for range 14 {
		cfg := k.podConfig()
		cfg.Annotations = map[string]string{"a": strings.Repeat("x", 500_000)}
		k.ok("make the pod's log directory", os.MkdirAll(cfg.LogDirectory, 0o755))
		r, err := k.Runtime.RunPodSandbox(k.ctx(), &cri.RunPodSandboxRequest{Config: cfg})
		if status.Code(err) == codes.ResourceExhausted {
			break
		}
		k.ok("RunPodSandbox", err)
		pods = append(pods, r.PodSandboxId)
		c := k.containerConfig([]string{"sleep", "1000"})
		c.Annotations = cfg.Annotations
		_, err = k.tryCreate(r.PodSandboxId, c, cfg)
		if err != nil && status.Code(err) != codes.ResourceExhausted {
			k.ok("CreateContainer", err)
		}
	}
	if used := k.budget("lists and statuses"); used.Refused == 0 || used.InUse < 8<<20 {
		k.Errorf("budget of lists: %+v, want that it is used up and refuses", used)
	}
	return pods
}

// fillConfigurations makes containers with large environments until each pod has used its share up.
func (k *kubelet) fillConfigurations(pods []string) {
	k.Helper()
	var envs []*cri.KeyValue
	for i := range 15 {
		envs = append(envs, &cri.KeyValue{Key: fmt.Sprint("V", i), Value: []byte(strings.Repeat("x", 127<<10))})
	}
	for _, pod := range pods {
		for {
			c := k.containerConfig([]string{"sleep", "1000"})
			c.Envs = envs
			_, err := k.tryCreate(pod, c, &cri.PodSandboxConfig{})
			if status.Code(err) == codes.ResourceExhausted {
				break
			}
			k.ok("CreateContainer", err)
		}
	}
	if used := k.budget("configurations"); used.Refused == 0 || used.InUse < 48<<20 {
		k.Errorf("budget of configurations: %+v, want that it is used up and refuses", used)
	}
}

// sendHugeRequests creates containers with 15 MB of arguments, six at once.
func (k *kubelet) sendHugeRequests(pod string) {
	k.Helper()
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			c := k.containerConfig([]string{"true"})
			for range 15 {
				c.Args = append(c.Args, strings.Repeat("<", 1_000_000))
			}
			if _, err := k.tryCreate(pod, c, &cri.PodSandboxConfig{}); err == nil {
				k.Errorf("CreateContainer with arguments of 15 MB succeeded, want that it is refused")
			}
		})
	}
	all.Wait()
}

// checkService checks that podd serves all pods.
func (k *kubelet) checkService(pods []string) {
	k.Helper()
	ctx := k.ctx()
	_, err := k.Runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	k.ok("ListPodSandbox", err)
	_, err = k.Runtime.ListContainers(ctx, &cri.ListContainersRequest{})
	k.ok("ListContainers", err)
	_, err = k.Runtime.ListPodSandboxStats(ctx, &cri.ListPodSandboxStatsRequest{})
	k.ok("ListPodSandboxStats", err)
	_, err = k.Runtime.ListContainerStats(ctx, &cri.ListContainerStatsRequest{})
	k.ok("ListContainerStats", err)
	for _, id := range pods {
		_, err = k.Runtime.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
		k.ok("PodSandboxStatus", err)
	}
	if used := directorySize(k, k.Path("run")) >> 20; used > maxRunDirectory {
		k.Errorf("the run directory has %d MiB, want at most %d", used, maxRunDirectory)
	}
	if used := k.peakMemory(); used > maxMemory {
		k.Errorf("podd needed %d MiB, want at most %d", used, maxMemory)
	}
	k.Logf("run directory %d MiB, memory %d MiB", directorySize(k, k.Path("run"))>>20, k.peakMemory())
	pod, id := k.sleeper()
	if out := k.exec(id, "echo served"); out != "served\n" {
		k.Errorf("a command in another pod printed %q, want served", out)
	}
	k.removePod(pod)
}

// directorySize returns the bytes of the files on the filesystem of dir.
func directorySize(k *kubelet, dir string) (size int64) {
	k.Helper()
	var root unix.Stat_t
	k.ok("stat", unix.Lstat(dir, &root))
	k.ok("walk", filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err != nil || unix.Lstat(path, &st) != nil {
			return nil // removed concurrently
		}
		if st.Dev != root.Dev && d.IsDir() {
			return filepath.SkipDir
		}
		if st.Dev == root.Dev && st.Mode&unix.S_IFMT == unix.S_IFREG {
			size += st.Size
		}
		return nil
	}))
	return size
}
