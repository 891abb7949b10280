package record

import (
	"path/filepath"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// PodView is a pod at one moment. It is read-only.
type PodView struct {
	*Pod
	Status PodStatus
}

// Linux returns the pod's config for Linux with the limits that the last update set.
func (p PodView) Linux() *cri.LinuxPodSandboxConfig {
	limits := p.Status.Limits
	if limits == nil {
		return p.Config.GetLinux()
	}
	linux := &cri.LinuxPodSandboxConfig{}
	proto.Merge(linux, p.Config.GetLinux())
	linux.Overhead, linux.Resources = limits.Overhead, limits.Resources
	return linux
}

// ContainerView is a container, and its pod, at one moment. It is read-only.
type ContainerView struct {
	*Container
	Status ContainerStatus
	Pod    PodView
}

// LogPath returns the absolute path of the CRI log, "" for none.
func (c ContainerView) LogPath() string {
	dir, rel := c.Pod.Config.GetLogDirectory(), c.Config.GetLogPath()
	if dir == "" || rel == "" {
		return ""
	}
	return filepath.Join(dir, rel)
}
