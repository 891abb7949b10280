package nri

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/testing/protocmp"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/record"
)

// TestPodMessage: what plugins are told of a pod.
func TestPodMessage(t *testing.T) {
	pod := newPod("p1")
	pod.Config.Linux.Overhead = &cri.LinuxContainerResources{CpuShares: 10}
	pod.Config.Linux.Resources = &cri.LinuxContainerResources{MemoryLimitInBytes: 1 << 20}
	pod.Status.Infra = oci.Process{Pid: 42}
	want := &api.PodSandbox{
		Id: "p1", Name: "web", Namespace: "shop", Uid: "u-p1", Labels: map[string]string{"app": "web"},
		Annotations: map[string]string{"note": "1"}, RuntimeHandler: "runc", Pid: 42, Ips: []string{"10.0.0.7"},
		Linux: &api.LinuxPodSandbox{
			CgroupParent: "/kubepods/podp1",
			PodOverhead: &api.LinuxResources{
				Cpu: &api.LinuxCPU{Shares: api.UInt64(uint64(10))}, Memory: &api.LinuxMemory{},
			},
			PodResources: &api.LinuxResources{
				Cpu: &api.LinuxCPU{}, Memory: &api.LinuxMemory{Limit: api.Int64(int64(1 << 20))},
			},
			Namespaces: []*api.LinuxNamespace{{Type: "network", Path: "/var/run/netns/podd-p1"}},
		},
	}
	if d := cmp.Diff(want, podMessage(pod), protocmp.Transform()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	onNode := podMessage(record.PodView{Pod: &record.Pod{ID: "host", Config: &cri.PodSandboxConfig{}}})
	if got := onNode.GetLinux().GetNamespaces(); got != nil {
		t.Errorf("a pod on the node's network has the namespaces %v, want none", got)
	}
}

// TestContainerMessage: what plugins are told of a container, with config.json and when that is gone.
func TestContainerMessage(t *testing.T) {
	c := newContainer("c1", newPod("p1"))
	c.CreatedAt = time.Unix(5, 7)
	c.Config.Labels = map[string]string{"l": "1"}
	c.Config.CDIDevices = []*cri.CDIDevice{{Name: "vendor.com/gpu=1"}}
	c.Config.Linux.SecurityContext = &cri.LinuxContainerSecurityContext{
		Seccomp: &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost, LocalhostRef: "a.json"},
	}
	c.Status = record.ContainerStatus{
		State: record.ContainerExited, Process: oci.Process{Pid: 9}, StartedAt: time.Unix(6, 0), FinishedAt: time.Unix(8, 0),
		ExitCode: 137, Reason: "OOMKilled", Message: "m",
	}
	want := &api.Container{
		Id: "c1", PodSandboxId: "p1", Name: "main", Labels: map[string]string{"l": "1"}, CreatedAt: 5_000_000_007,
		State: api.ContainerState_CONTAINER_STOPPED, Pid: 9, StartedAt: 6_000_000_000, FinishedAt: 8_000_000_000,
		ExitCode: 137, StatusReason: "OOMKilled", StatusMessage: "m",
		Image:      &api.Image{Name: "busybox", ConfigDigest: "sha256:beef"},
		CDIDevices: []*api.CDIDevice{{Name: "vendor.com/gpu=1"}},
		Linux: &api.LinuxContainer{
			Resources: &api.LinuxResources{
				Cpu:    &api.LinuxCPU{Shares: api.UInt64(uint64(512))},
				Memory: &api.LinuxMemory{Limit: api.Int64(int64(64 << 20))},
			},
			SeccompProfile: &api.SecurityProfile{ProfileType: api.SecurityProfile_LOCALHOST, LocalhostRef: "a.json"},
		},
	}
	if d := cmp.Diff(want, containerMessage(c, nil), protocmp.Transform()); d != "" {
		t.Errorf("without config.json, -want +got:\n%s", d)
	}
	s := baseSpec()
	s.Process.User = specs.User{UID: 1, GID: 2, AdditionalGids: []uint32{3}}
	s.Linux.CgroupsPath = "/x"
	s.Linux.IntelRdt = &specs.LinuxIntelRdt{ClosID: "gold"}
	s.Linux.Seccomp = &specs.LinuxSeccomp{DefaultAction: specs.ActErrno}
	got := containerMessage(c, s)
	for what, ok := range map[string]bool{
		"args":    slices.Equal(got.GetArgs(), []string{"/bin/sh"}),
		"env":     slices.Equal(got.GetEnv(), []string{"PATH=/bin", "KEEP=1"}),
		"mounts":  len(got.GetMounts()) == 2 && got.GetMounts()[1].GetSource() == "/srv/data",
		"user":    got.GetUser().GetUid() == 1 && got.GetUser().GetGid() == 2 && len(got.GetUser().GetAdditionalGids()) == 1,
		"rlimits": len(got.GetRlimits()) == 1 && got.GetRlimits()[0].GetHard() == 4096,
		"score":   got.GetLinux().GetOomScoreAdj() != nil,
		"shares":  got.GetLinux().GetResources().GetCpu().GetShares().GetValue() == 512,
		"cgroup":  got.GetLinux().GetCgroupsPath() == "/x",
		"devices": len(got.GetLinux().GetDevices()) == 1,
		"spaces":  len(got.GetLinux().GetNamespaces()) == 2,
		"sysctl":  got.GetLinux().GetSysctl()["kernel.shm_rmid_forced"] == "1",
		"rdt":     got.GetLinux().GetRdt().GetClosId().GetValue() == "gold",
		"policy":  got.GetLinux().GetSeccompPolicy().GetDefaultAction() == "SCMP_ACT_ERRNO",
	} {
		if !ok {
			t.Errorf("%s of config.json is missing in %v", what, got)
		}
	}
}

// TestLimitsThereAndBack: limits of the CRI are the same after plugins have got them.
func TestLimitsThereAndBack(t *testing.T) {
	for _, r := range []*cri.LinuxContainerResources{
		{},
		{CpuPeriod: 100000, CpuQuota: -1, CpuShares: 2, CpusetCpus: "0-1", CpusetMems: "0"},
		{MemoryLimitInBytes: 1 << 30, MemorySwapLimitInBytes: 1 << 31, Unified: map[string]string{"memory.high": "1"}},
		{HugepageLimits: []*cri.HugepageLimit{{PageSize: "2MB", Limit: 4}}},
	} {
		got, err := splitResources(resourcesMessage(r))
		if d := cmp.Diff(r, got.CRI, protocmp.Transform()); err != nil || d != "" {
			t.Errorf("%v: %v, -want +got:\n%s", r, err, d)
		}
	}
	if got := resourcesMessage(nil); got != nil {
		t.Errorf("resourcesMessage(nil) = %v, want nil", got)
	}
}

// TestRestOfLimits: limits that the CRI has no field for are added to those made of it.
func TestRestOfLimits(t *testing.T) {
	u := &api.ContainerUpdate{}
	u.SetLinuxCPURealtimePeriod(5)
	u.SetLinuxMemoryReservation(6)
	u.SetLinuxPidLimits(7)
	r, err := splitResources(u.GetLinux().GetResources())
	if err != nil {
		t.Fatal(err)
	}
	limits := &specs.LinuxResources{}
	r.MergeInto(limits)
	want := &specs.LinuxResources{
		CPU: &specs.LinuxCPU{RealtimePeriod: new(uint64(5))}, Memory: &specs.LinuxMemory{Reservation: new(int64(6))},
		Pids: &specs.LinuxPids{Limit: new(int64(7))},
	}
	if d := cmp.Diff(want, limits); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	Resources{}.MergeInto(limits) // changes nothing
	if d := cmp.Diff(want, limits); d != "" {
		t.Errorf("no further limits, -want +got:\n%s", d)
	}
	for field, msg := range map[string]*api.LinuxResources{
		"memory.kernel":        {Memory: &api.LinuxMemory{Kernel: &api.OptionalInt64{Value: 1}}},
		"memory.use_hierarchy": {Memory: &api.LinuxMemory{UseHierarchy: &api.OptionalBool{Value: true}}},
		"rdt_class":            {RdtClass: &api.OptionalString{Value: "x"}},
	} {
		if _, err := splitResources(msg); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), field) {
			t.Errorf("splitResources = %v, want an invalid argument that names %s", err, field)
		}
	}
}

// TestNoClassInUpdates: runtimes cannot change limits of block devices.
func TestNoClassInUpdates(t *testing.T) {
	u := &api.ContainerUpdate{}
	u.SetLinuxBlockIOClass("x")
	if _, err := splitUpdate(u); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "blockio_class") {
		t.Errorf("splitUpdate = %v, want an invalid argument that names the class", err)
	}
}

// TestUpdatedLimitsInMessages: a plugin sees the new limits of a container, and everything else as before.
func TestUpdatedLimitsInMessages(t *testing.T) {
	c := newContainer("c1", newPod("p1"))
	old := containerMessage(c, baseSpec())
	old.Linux.Resources.Pids = &api.LinuxPids{Limit: 5}
	got := withResources(old, resourcesMessage(&cri.LinuxContainerResources{CpuShares: 9}))
	r := got.GetLinux().GetResources()
	if r.GetCpu().GetShares().GetValue() != 9 || r.GetPids().GetLimit() != 5 ||
		len(got.GetLinux().GetDevices()) != 1 || len(got.GetMounts()) != 2 {
		t.Errorf("message = %v, want 9 shares and the rest as before", got)
	}
	if shares := old.GetLinux().GetResources().GetCpu().GetShares().GetValue(); shares != 512 {
		t.Errorf("the message before has %d shares, want 512: it may be in use", shares)
	}
}

// TestChunks: no message is larger than the limit unless it has one item, all but the last say that there is more, and
// nothing is lost.
func TestChunks(t *testing.T) {
	if got := chunks(nil, nil); len(got) != 1 || got[0].GetMore() {
		t.Errorf("chunks of nothing = %v, want one empty message", got)
	}
	var pods []*api.PodSandbox
	var containers []*api.Container
	for i := range 100 {
		pods = append(pods, &api.PodSandbox{Id: fmt.Sprint("p", i)})
		size := 60_000
		if i == 50 {
			size = chunkBytes + 1
		}
		containers = append(containers, &api.Container{Id: fmt.Sprint("c", i), Name: strings.Repeat("x", size)})
	}
	list := chunks(pods, containers)
	nPods, nContainers := 0, 0
	for i, r := range list {
		nPods, nContainers = nPods+len(r.GetPods()), nContainers+len(r.GetContainers())
		if r.GetMore() != (i < len(list)-1) {
			t.Errorf("message %d of %d: more = %v", i, len(list), r.GetMore())
		}
		size := 0
		for _, c := range r.GetContainers() {
			size += len(c.GetName())
		}
		if size > chunkBytes && len(r.GetContainers()) > 1 {
			t.Errorf("message %d has %d containers of %d bytes, want %d at most", i, len(r.GetContainers()), size, chunkBytes)
		}
	}
	if nPods != 100 || nContainers != 100 || len(list) < 4 {
		t.Errorf("%d messages have %d pods and %d containers, want 100 each", len(list), nPods, nContainers)
	}
}
