package server

import (
	"cmp"
	"slices"
	"strings"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/sandbox/convert"
	"github.com/podd-project/podd/sandbox/record"
)

func containerState(s record.ContainerState) cri.ContainerState {
	switch s {
	case record.ContainerCreated:
		return cri.ContainerState_CONTAINER_CREATED
	case record.ContainerRunning:
		return cri.ContainerState_CONTAINER_RUNNING
	case record.ContainerExited:
		return cri.ContainerState_CONTAINER_EXITED
	}
	return cri.ContainerState_CONTAINER_UNKNOWN
}

// containerItem is a container in a list; fixed is the encoding of fixedContainerItem, nil when there is none.
func containerItem(c record.ContainerView, img *image.Image, fixed []byte) *cri.Container {
	item := &cri.Container{}
	if fixed == nil {
		item = fixedContainerItem(c.Container, img)
	}
	item.ProtoReflect().SetUnknown(fixed)
	item.State = containerState(c.Status.State)
	return item
}

// fixedContainerItem is the part of containerItem that only changes with the image.
func fixedContainerItem(r *record.Container, img *image.Image) *cri.Container {
	return &cri.Container{
		Id:           r.ID,
		PodSandboxId: r.PodID,
		Metadata:     r.Config.GetMetadata(),
		Image:        usedImage(r, img),
		ImageRef:     digestedName(r.ImageID, img),
		ImageId:      r.ImageID,
		CreatedAt:    r.CreatedAt.UnixNano(),
		Labels:       r.Config.GetLabels(),
		Annotations:  r.Config.GetAnnotations(),
	}
}

// containerStatus describes a container.
func containerStatus(c record.ContainerView, images imageFinder) *cri.ContainerStatus {
	cfg, img := c.Config, images.image(c.ImageID)
	return &cri.ContainerStatus{
		Id:          c.ID,
		Metadata:    cfg.GetMetadata(),
		State:       containerState(c.Status.State),
		CreatedAt:   c.CreatedAt.UnixNano(),
		StartedAt:   nanoseconds(c.Status.StartedAt),
		FinishedAt:  nanoseconds(c.Status.FinishedAt),
		ExitCode:    c.Status.ExitCode,
		Image:       usedImage(c.Container, img),
		ImageRef:    digestedName(c.ImageID, img),
		ImageId:     c.ImageID,
		Reason:      c.Status.Reason,
		Message:     strings.ToValidUTF8(c.Status.Message, "?"), // as protobuf requires; a runtime's message need not be
		Labels:      cfg.GetLabels(),
		Annotations: cfg.GetAnnotations(),
		Mounts:      shownMounts(cfg.GetMounts(), images),
		LogPath:     c.LogPath(),
		Resources:   containerResources(c),
		User:        containerUser(c),
		StopSignal:  convert.CRISignal(c.StopSignal),
	}
}

// shownMounts returns the mounts as sent. In mounts of images image_ref is set to the image's name with a digest.
func shownMounts(mounts []*cri.Mount, images imageFinder) []*cri.Mount {
	shown := slices.Clone(mounts)
	for i, m := range mounts {
		img := images.image(m.GetImage().GetImage())
		if img == nil {
			continue
		}
		shown[i] = proto.CloneOf(m)
		shown[i].Image.ImageRef = digestedName(img.ID, img)
	}
	return shown
}

// nanoseconds returns 0 for the zero time.
func nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func containerResources(c record.ContainerView) *cri.ContainerResources {
	r := c.Status.Resources
	if r == nil {
		r = c.Config.GetLinux().GetResources()
	}
	if r == nil {
		r = &cri.LinuxContainerResources{}
	}
	return &cri.ContainerResources{Linux: r}
}

// containerUser returns nil until the user of the process is known.
func containerUser(c record.ContainerView) *cri.ContainerUser {
	u := c.Status.User
	if u == nil {
		return nil
	}
	linux := &cri.LinuxContainerUser{Uid: int64(u.UID), Gid: int64(u.GID)}
	for _, g := range u.AdditionalGids {
		linux.SupplementalGroups = append(linux.SupplementalGroups, int64(g))
	}
	return &cri.ContainerUser{Linux: linux}
}

// containerInfo is the verbose part of a container's status. It omits the environment of both config and config.json:
// pods get their secrets there, and this output ends up in bug reports.
func (s *Server) containerInfo(c record.ContainerView) map[string]any {
	cfg := proto.CloneOf(c.Config)
	cfg.Envs = nil
	info := map[string]any{
		"pid":            c.Status.Process.Pid,
		"sandboxID":      c.PodID,
		"state":          c.Status.State,
		"runtimeHandler": c.Pod.RequestedHandler,
		"config":         message(cfg),
		"operations":     s.deps.Engine.LastOperations(c.ID),
	}
	spec, err := s.deps.RuntimeSpec(c.ID)
	if err != nil { // config.json is removed with the process
		info["runtimeSpecError"] = err.Error()
		return info
	}
	spec = withoutEnv(spec)
	updateSpec(spec, c.Status.Resources)
	info["runtimeSpec"] = spec
	return info
}

// updateSpec sets the resources in force, which the runtime's config.json does not have after an update. Fields that
// are zero stay as they are.
func updateSpec(s *specs.Spec, r *cri.LinuxContainerResources) {
	if r == nil || s.Linux == nil {
		return
	}
	linux := *s.Linux
	resources := orNew(linux.Resources)
	cpu, memory := orNew(resources.CPU), orNew(resources.Memory)
	setPositive(&cpu.Shares, uint64(max(r.GetCpuShares(), 0)))
	setPositive(&cpu.Period, uint64(max(r.GetCpuPeriod(), 0)))
	setPositive(&cpu.Quota, r.GetCpuQuota())
	cpu.Cpus, cpu.Mems = cmp.Or(r.GetCpusetCpus(), cpu.Cpus), cmp.Or(r.GetCpusetMems(), cpu.Mems)
	setPositive(&memory.Limit, r.GetMemoryLimitInBytes())
	setPositive(&memory.Swap, r.GetMemorySwapLimitInBytes())
	if *cpu != (specs.LinuxCPU{}) {
		resources.CPU = cpu
	}
	if *memory != (specs.LinuxMemory{}) {
		resources.Memory = memory
	}
	linux.Resources = resources
	s.Linux = &linux
}

// orNew returns a copy of what p points to, or a new zero value.
func orNew[T any](p *T) *T {
	var v T
	if p != nil {
		v = *p
	}
	return &v
}

// setPositive makes *to point to v if v is positive.
func setPositive[T int64 | uint64](to **T, v T) {
	if v > 0 {
		*to = &v
	}
}

func withoutEnv(spec *specs.Spec) *specs.Spec {
	shown := *spec
	if spec.Process != nil {
		process := *spec.Process
		process.Env = nil
		shown.Process = &process
	}
	shown.Hooks = nil // hooks have environments too
	return &shown
}
