package server

import (
	"net/netip"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// checkImage checks a request that only has an image.
func checkImage(spec *cri.ImageSpec) error {
	c := newCheck()
	c.imageSpec("image", spec)
	return c.err()
}

func checkImageFilter(f *cri.ImageFilter) error {
	c := newCheck()
	if f.GetImage().GetImage() != "" {
		c.imageSpec("filter.image", f.GetImage())
	}
	return c.err()
}

func checkPullImage(r *cri.PullImageRequest) error {
	c := newCheck()
	c.imageSpec("image", r.GetImage())
	c.credentials("auth", r.GetAuth())
	c.label("sandbox_config.metadata.namespace", r.GetSandboxConfig().GetMetadata().GetNamespace())
	return c.err()
}

// imageSpec checks the fields. The image store checks that the name is a reference.
func (c check) imageSpec(field string, spec *cri.ImageSpec) {
	c.that(spec != nil, field, "must be set")
	c = c.at(field)
	c.word("image", spec.GetImage(), maxImageName)
	c.line("user_specified_image", spec.GetUserSpecifiedImage(), maxImageName)
	c.line("runtime_handler", spec.GetRuntimeHandler(), maxName)
	c.line("image_ref", spec.GetImageRef(), maxImageName)
	c.labels("annotations", spec.GetAnnotations())
}

func (c check) credentials(field string, a *cri.AuthConfig) {
	c = c.at(field)
	c.text("username", a.GetUsername(), maxSecret)
	c.text("password", a.GetPassword(), maxSecret)
	c.line("auth", a.GetAuth(), maxSecret)
	c.line("server_address", a.GetServerAddress(), maxImageName)
	c.line("identity_token", a.GetIdentityToken(), maxSecret) // tokens are sent in HTTP headers
	c.line("registry_token", a.GetRegistryToken(), maxSecret)
}

// checkRuntimeConfig accepts one CIDR, or one for each IP family separated by a comma, as the kubelet sends it.
func checkRuntimeConfig(r *cri.UpdateRuntimeConfigRequest) error {
	c := newCheck()
	const field = "runtime_config.network_config.pod_cidr"
	cidr := r.GetRuntimeConfig().GetNetworkConfig().GetPodCidr()
	if cidr == "" {
		return nil
	}
	c.line(field, cidr, maxName)
	parts := strings.Split(cidr, ",")
	c.that(len(parts) <= 2, field, "must have at most one CIDR per IP family")
	for _, p := range parts {
		_, err := netip.ParsePrefix(strings.TrimSpace(p))
		c.that(err == nil, field, "must be a CIDR such as 10.1.0.0/16")
	}
	return c.err()
}
