package server

import (
	"strings"

	"github.com/sirupsen/logrus"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxField limits a logged value, in bytes: it comes from the client and is not validated yet.
const maxField = 128

// requestFields returns what may be logged of a request: ids and names. A whole request must never be logged: it has
// registry passwords and secrets in environments.
func requestFields(req any) logrus.Fields {
	f := fields{}
	switch r := req.(type) {
	case *cri.RunPodSandboxRequest:
		f.pod(r.GetConfig().GetMetadata())
		f.set("handler", r.GetRuntimeHandler())
	case *cri.CreateContainerRequest:
		f.set("pod", r.GetPodSandboxId())
		f.set("name", r.GetConfig().GetMetadata().GetName())
		f.image(r.GetConfig().GetImage())
	case *cri.PullImageRequest:
		f.image(r.GetImage())
		f.set("namespace", r.GetSandboxConfig().GetMetadata().GetNamespace())
	case *cri.ImageStatusRequest:
		f.image(r.GetImage())
	case *cri.RemoveImageRequest:
		f.image(r.GetImage())
	case *cri.RestorePodRequest:
		f.pod(r.GetConfig().GetMetadata())
		f.set("handler", r.GetRuntimeHandler())
	case interface{ GetContainerId() string }:
		f.set("container", r.GetContainerId())
	case interface{ GetPodSandboxId() string }:
		f.set("pod", r.GetPodSandboxId())
	}
	return logrus.Fields(f)
}

// responseFields returns the ids that a call has created.
func responseFields(resp any) logrus.Fields {
	f := fields{}
	switch r := resp.(type) {
	case *cri.RunPodSandboxResponse:
		f.set("pod", r.GetPodSandboxId())
	case *cri.RestorePodResponse:
		f.set("pod", r.GetPodSandboxId())
	case *cri.CreateContainerResponse:
		f.set("container", r.GetContainerId())
	case *cri.PullImageResponse:
		f.set("image_id", r.GetImageRef())
	}
	return logrus.Fields(f)
}

type fields logrus.Fields

func (f fields) set(key, value string) {
	if value == "" {
		return
	}
	if len(value) > maxField {
		value = value[:maxField] + "..."
	}
	f[key] = strings.ToValidUTF8(value, "?")
}

func (f fields) pod(m *cri.PodSandboxMetadata) {
	f.set("name", m.GetName())
	f.set("namespace", m.GetNamespace())
	f.set("uid", m.GetUid())
}

// image sets the image's name unless it may contain credentials: "user:password@registry/name" is not a valid
// reference, but clients send it.
func (f fields) image(spec *cri.ImageSpec) {
	name := spec.GetImage()
	if _, digest, found := strings.Cut(name, "@"); found && !strings.HasPrefix(digest, "sha256:") {
		name = "(invalid reference, not logged)"
	}
	f.set("image", name)
}
