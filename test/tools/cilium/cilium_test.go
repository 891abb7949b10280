// Package cilium has the cgroup manager of Cilium's agent find podd's containers, see ../README.md.
package cilium

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/cilium/pkg/cgroups"
	"github.com/cilium/cilium/pkg/cgroups/manager"
	slim "github.com/cilium/cilium/pkg/k8s/slim/k8s/api/core/v1"
	metav1 "github.com/cilium/cilium/pkg/k8s/slim/k8s/apis/meta/v1"
	"github.com/cilium/cilium/pkg/kpr"
	nodetypes "github.com/cilium/cilium/pkg/node/types"
	"github.com/cilium/cilium/pkg/option"
	"github.com/cilium/hive"
	"github.com/cilium/hive/cell"
	"github.com/cilium/hive/job"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/spec"
)

const (
	podID       = "1858680e-b044-4fd5-9dd4-f137e30e2180"
	containerID = "e275d1a37782ab30008aa3ae6666cccefe53b3a14a2ab5a8dc459939107c8c0e"
	// slices are those of a pod of the class BestEffort, as the kubelet creates them with the systemd driver.
	slices = "kubepods.slice/kubepods-besteffort.slice/" +
		"kubepods-besteffort-pod1858680e_b044_4fd5_9dd4_f137e30e2180.slice"
)

// TestCilium: below the slices that a kubelet creates, Cilium names the pod of a cgroup that has the name which podd
// gives a container's with the systemd driver, and not the one that podd gives it with cgroupfs.
func TestCilium(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("cgroups need root")
	}
	root := filepath.Join(t.TempDir(), "cgroup2")
	cgroups.CheckOrMountCgrpFS(slog.New(slog.DiscardHandler), root) // mounts cgroup v2 there, as Cilium's agent does
	t.Cleanup(func() { must(t, unix.Unmount(root, 0)) })
	for name, c := range map[string]struct {
		systemd, found bool
	}{"systemd": {true, true}, "cgroupfs": {false, false}} {
		t.Run(name, func(t *testing.T) {
			path, err := spec.CgroupsPath(c.systemd, "/"+slices, "crio", containerID)
			must(t, err)
			dir := filepath.Join(root, slices, cgroupName(path))
			must(t, os.MkdirAll(dir, 0o755))
			t.Cleanup(func() { must(t, removeBelow(root, dir)) })
			id, err := cgroups.GetCgroupID(dir)
			must(t, err)
			m := start(t)
			m.OnAddPod(pod())
			metadata := m.GetPodMetadataForContainer(id)
			if found := metadata != nil && metadata.Name == "web" && metadata.Namespace == "shop"; found != c.found {
				t.Errorf("Cilium's metadata of %s = %+v, found should be %v", dir, metadata, c.found)
			}
		})
	}
}

// cgroupName returns the name of the cgroup that a runtime makes for a cgroupsPath of config.json: with systemd
// "<slice>:<prefix>:<name>" is the scope <prefix>-<name>.scope.
func cgroupName(path string) string {
	if parts := strings.Split(path, ":"); len(parts) == 3 {
		return parts[1] + "-" + parts[2] + ".scope"
	}
	return filepath.Base(path)
}

// start starts the manager as Cilium's agent does, with the option that traces the socket load balancer.
func start(t *testing.T) manager.CGroupManager {
	t.Helper()
	nodetypes.SetName("node")
	agent := &option.DaemonConfig{}
	agent.UnsafeDaemonConfigOption.EnableSocketLBTracing = true
	var m manager.CGroupManager
	h := hive.New(manager.Cell, job.Cell,
		cell.Provide(
			func() *option.DaemonConfig { return agent },
			func() kpr.KPRConfig { return kpr.KPRConfig{EnableSocketLB: true} },
			func() cell.Health { health, _ := cell.NewSimpleHealth(); return health },
			func(r job.Registry, h cell.Health) job.Group { return r.NewGroup(h) },
		),
		cell.Invoke(func(got manager.CGroupManager) { m = got }))
	log := slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must(t, h.Start(log, ctx))
	t.Cleanup(func() { must(t, h.Stop(log, context.Background())) })
	return m
}

// pod returns the pod as Cilium's agent gets it from the API server.
func pod() *slim.Pod {
	return &slim.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: podID},
		Spec:       slim.PodSpec{NodeName: "node"},
		Status: slim.PodStatus{
			QOSClass: slim.PodQOSBestEffort, PodIPs: []slim.PodIP{{IP: "192.0.2.7"}},
			ContainerStatuses: []slim.ContainerStatus{{
				ContainerID: "podd://" + containerID,
				State:       slim.ContainerState{Running: &slim.ContainerStateRunning{}},
			}},
		},
	}
}

// removeBelow removes a cgroup and its parents up to root, which stays.
func removeBelow(root, dir string) error {
	var errs []error
	for ; dir != root; dir = filepath.Dir(dir) {
		errs = append(errs, os.Remove(dir))
	}
	return errors.Join(errs...)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
