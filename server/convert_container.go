package server

import (
	"slices"
	"strings"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/image"
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
func containerItem(c Container, img *image.Image, fixed []byte) *cri.Container {
	item := &cri.Container{}
	if fixed == nil {
		item = fixedContainerItem(c.Record, img)
	}
	item.ProtoReflect().SetUnknown(fixed)
	item.State = containerState(c.Status.State)
	return item
}

// fixedContainerItem is what never changes of containerItem as long as the image does not.
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
func containerStatus(c Container, images imageFinder) *cri.ContainerStatus {
	cfg, img := c.Record.Config, images.image(c.Record.ImageID)
	return &cri.ContainerStatus{
		Id:          c.Record.ID,
		Metadata:    cfg.GetMetadata(),
		State:       containerState(c.Status.State),
		CreatedAt:   c.Record.CreatedAt.UnixNano(),
		StartedAt:   nanoseconds(c.Status.StartedAt),
		FinishedAt:  nanoseconds(c.Status.FinishedAt),
		ExitCode:    c.Status.ExitCode,
		Image:       usedImage(c.Record, img),
		ImageRef:    digestedName(c.Record.ImageID, img),
		ImageId:     c.Record.ImageID,
		Reason:      c.Status.Reason,
		Message:     strings.ToValidUTF8(c.Status.Message, "?"), // proto strings must be UTF-8, a runtime's words need not
		Labels:      cfg.GetLabels(),
		Annotations: cfg.GetAnnotations(),
		Mounts:      shownMounts(cfg.GetMounts(), images),
		LogPath:     c.LogPath,
		Resources:   containerResources(c),
		User:        containerUser(c),
		StopSignal:  cri.Signal(cri.Signal_value["SIGNAL_"+c.Record.StopSignal]),
	}
}

// shownMounts are the mounts as sent; those of images also say which image it is, by its name with a digest.
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

// nanoseconds is 0 for a time that has not come yet.
func nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func containerResources(c Container) *cri.ContainerResources {
	r := c.Status.Resources
	if r == nil {
		r = c.Record.Config.GetLinux().GetResources()
	}
	if r == nil {
		r = &cri.LinuxContainerResources{}
	}
	return &cri.ContainerResources{Linux: r}
}

// containerUser is nil until it is known whom the process was made as.
func containerUser(c Container) *cri.ContainerUser {
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

// containerInfo is the verbose part of a container's status, for people. The environment is left out of both the
// config and config.json: it is where pods get their secrets, and this ends in logs and bug reports.
func (s *Server) containerInfo(c Container) map[string]any {
	cfg := proto.CloneOf(c.Record.Config)
	cfg.Envs = nil
	info := map[string]any{
		"pid":            c.Status.Process.Pid,
		"sandboxID":      c.Record.PodID,
		"state":          c.Status.State,
		"runtimeHandler": c.Handler,
		"config":         message(cfg),
		"operations":     operations(c.Operations),
	}
	if s.deps.RuntimeSpec == nil {
		return info
	}
	spec, err := s.deps.RuntimeSpec(c.Record.ID)
	if err != nil { // gone with the container's process: the rest is still worth showing
		info["runtimeSpecError"] = err.Error()
		return info
	}
	info["runtimeSpec"] = withoutEnv(spec)
	return info
}

func withoutEnv(spec *specs.Spec) *specs.Spec {
	shown := *spec
	if spec.Process != nil {
		process := *spec.Process
		process.Env = nil
		shown.Process = &process
	}
	shown.Hooks = nil // they have environments too
	return &shown
}
