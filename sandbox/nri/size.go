package nri

import (
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"google.golang.org/protobuf/proto"

	"github.com/podd-project/podd/sandbox/record"
)

// maxDescription bounds the description of a container and its pod for plugins, in bytes: a message of the protocol
// holds 4 MiB, and a plugin that gets a larger one would be taken for one that has failed.
const maxDescription = 3 << 20

// checkSize refuses a container that cannot be described to plugins: errdefs.ErrInvalidArgument.
func checkSize(pod *api.PodSandbox, c *api.Container) error {
	if n := proto.Size(pod) + proto.Size(c); n > maxDescription {
		return fmt.Errorf("%w: NRI plugins must know the container: its environment, arguments, mounts, labels and "+
			"annotations, with those of its pod, have %d bytes, at most %d are allowed",
			errdefs.ErrInvalidArgument, n, maxDescription)
	}
	return nil
}

// bounded returns the description of a container that was created while there was no plugin. If it is too large, it has
// only the container's identity and the limits that the kernel enforces.
func (p *Plugins) bounded(c record.ContainerView, msg *api.Container) *api.Container {
	if checkSize(podMessage(c.Pod), msg) == nil {
		return msg
	}
	p.log.WithField("container", c.ID).Warn("container is too large for a message to NRI plugins: they do not get " +
		"its environment, arguments, mounts, labels and annotations")
	return &api.Container{
		Id: msg.GetId(), PodSandboxId: msg.GetPodSandboxId(), Name: msg.GetName(), CreatedAt: msg.GetCreatedAt(),
		Image: msg.GetImage(), User: msg.GetUser(), Linux: msg.GetLinux(),
	}
}
