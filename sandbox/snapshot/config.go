package snapshot

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A checkpoint is authoritative for processes and filesystems. The configs of RestorePod describe the processes that
// are expected, and must be equal in everything that cannot be applied to a process that runs already. The functions
// below remove what may differ and leave the rest, so that a field that a later CRI adds must be equal, too.

// ContainerConfig returns the part of a container's config that must be equal at a restore, for a manifest. The image
// is compared by its id.
func ContainerConfig(c *cri.ContainerConfig) (json.RawMessage, error) {
	return encode(expectedContainer(c))
}

// PodConfig is ContainerConfig for a pod.
func PodConfig(c *cri.PodSandboxConfig) (json.RawMessage, error) { return encode(expectedPod(c)) }

func expectedContainer(c *cri.ContainerConfig) *cri.ContainerConfig {
	c = proto.Clone(c).(*cri.ContainerConfig)
	c.Metadata, c.Image, c.Labels, c.Annotations, c.LogPath = nil, nil, nil, nil, ""
	c.Devices, c.CDIDevices, c.StopSignal = nil, nil, 0
	for _, m := range c.Mounts { // sources may differ, destinations and how they are mounted may not
		m.HostPath, m.Image, m.ImageSubPath, m.SelinuxRelabel = "", nil, "", false
	}
	slices.SortStableFunc(c.Mounts, func(a, b *cri.Mount) int {
		return strings.Compare(a.GetContainerPath(), b.GetContainerPath())
	})
	if c.Linux != nil {
		c.Linux.Resources = nil
	}
	slices.SortStableFunc(c.Envs, func(a, b *cri.KeyValue) int { return strings.Compare(a.GetKey(), b.GetKey()) })
	return c
}

func expectedPod(c *cri.PodSandboxConfig) *cri.PodSandboxConfig {
	linux := c.GetLinux()
	return proto.Clone(&cri.PodSandboxConfig{Linux: &cri.LinuxPodSandboxConfig{
		SecurityContext: linux.GetSecurityContext(), Sysctls: linux.GetSysctls(),
	}}).(*cri.PodSandboxConfig)
}

func encode(m proto.Message) (json.RawMessage, error) {
	data, err := protojson.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode config: %w", err)
	}
	return data, nil
}

// CheckPod returns errdefs.ErrFailedPrecondition, with the name of a field, unless a pod with this config can be
// restored from the checkpoint.
func (m Manifest) CheckPod(config *cri.PodSandboxConfig) error {
	return compare("config", m.Pod, &cri.PodSandboxConfig{}, expectedPod(config))
}

// CheckContainers is CheckPod for the pod's containers: each has a config, and no other has.
func (m Manifest) CheckContainers(configs []*cri.ContainerConfig) error {
	for _, config := range configs {
		name := config.GetMetadata().GetName()
		c := m.Container(name)
		if c == nil {
			return fmt.Errorf("%w: the checkpoint has no container %q", errdefs.ErrFailedPrecondition, name)
		}
		if err := compare(fmt.Sprintf("container %q", name), c.Config, &cri.ContainerConfig{},
			expectedContainer(config)); err != nil {
			return err
		}
	}
	for _, c := range m.Containers {
		if !slices.ContainsFunc(configs, func(o *cri.ContainerConfig) bool { return o.GetMetadata().GetName() == c.Name }) {
			return fmt.Errorf("%w: container %q of the checkpoint has no config in the request",
				errdefs.ErrFailedPrecondition, c.Name)
		}
	}
	return nil
}

// compare compares a config of the manifest, decoded into had, with the requested one. The error has no value: an
// environment has secrets.
func compare(what string, manifest json.RawMessage, had, requested proto.Message) error {
	if err := protojson.Unmarshal(manifest, had); err != nil {
		return fmt.Errorf("%w: %s in the manifest of the checkpoint: %w", errdefs.ErrFailedPrecondition, what, err)
	}
	field := difference(had.ProtoReflect(), requested.ProtoReflect())
	if field == "" {
		return nil
	}
	return fmt.Errorf("%w: %s differs from the checkpoint in %s: a restored process keeps its original configuration",
		errdefs.ErrFailedPrecondition, what, field)
}

// neutral are the messages of which an empty one means the same as none. Others do not: without run_as_user the image
// decides, and an empty SecurityProfile is RuntimeDefault.
var neutral = map[protoreflect.FullName]bool{
	"runtime.v1.LinuxContainerConfig": true, "runtime.v1.LinuxContainerSecurityContext": true,
	"runtime.v1.LinuxPodSandboxConfig": true, "runtime.v1.LinuxSandboxSecurityContext": true,
	"runtime.v1.NamespaceOption": true, "runtime.v1.Capability": true,
}

// difference returns the path of the first field in which two messages of a type differ, "" if they are equal.
func difference(a, b protoreflect.Message) string {
	fields := a.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		name := string(f.Name())
		if f.Message() == nil || f.IsList() || f.IsMap() {
			if !a.Get(f).Equal(b.Get(f)) {
				return name
			}
			continue
		}
		if a.Has(f) != b.Has(f) && !neutral[f.Message().FullName()] {
			return name
		}
		if inner := difference(a.Get(f).Message(), b.Get(f).Message()); inner != "" {
			return name + "." + inner
		}
	}
	return ""
}
