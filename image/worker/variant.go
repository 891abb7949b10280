package worker

import (
	"context"
	"fmt"
	"slices"

	digest "github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	containersimage "go.podman.io/image/v5/image"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/image/v5/types"

	"github.com/podd-project/podd/image/registry"
)

// A list may have several images for one platform, distinguished only by annotations. A pull selects one by its
// annotations with the keys that the node's configuration names. The other annotations must not distinguish pulls,
// because a kubelet sends all of a pod's.

// chooseVariant returns the image of the source's list that has all annotations of the variant and fits this platform
// best; "" if there is none, or no list: a pod's other containers have images without variants.
func chooseVariant(
	ctx context.Context, sys *types.SystemContext, source types.ImageSource, variant map[string]string,
) (digest.Digest, error) {
	if len(variant) == 0 {
		return "", nil
	}
	blob, mime, err := source.GetManifest(ctx, nil)
	if err != nil || mime != v1.MediaTypeImageIndex { // docker's lists have no annotations
		return "", err
	}
	list, err := manifest.OCI1IndexFromManifest(blob)
	if err != nil {
		return "", fmt.Errorf("read manifest list: %w", err)
	}
	without := func(d v1.Descriptor) bool { return !annotated(d, variant) }
	fits := slices.DeleteFunc(slices.Clone(list.Manifests), without)
	chosen, err := manifest.OCI1IndexFromComponents(fits, nil).ChooseInstance(sys)
	if err != nil {
		return "", nil //nolint:nilerr // none for this platform: checkPlatform has found one in the whole list
	}
	return chosen, nil
}

func annotated(d v1.Descriptor, variant map[string]string) bool {
	for key, value := range variant {
		if d.Annotations[key] != value {
			return false
		}
	}
	return true
}

// selectVariant changes the copy of a list into that of the variant's image, if the list has one. The policy must
// accept this image under the name of the list, as it must accept that of a platform. The copy then reads it by its
// digest, so that it is the same image, and without a wrapper of the source: containers/image reads signatures of
// sigstore only from its own sources.
func (c *copyJob) selectVariant(ctx context.Context, source types.ImageSource, variant map[string]string) error {
	chosen, err := chooseVariant(ctx, c.sys, source, variant)
	if err != nil || chosen == "" {
		return err
	}
	accepted, err := c.policy.IsRunningImageAllowed(ctx, containersimage.UnparsedInstance(source, &chosen))
	if !accepted {
		return fmt.Errorf("image %s of the list, which the pod's annotations select: %w", chosen, err)
	}
	named, err := reference.WithDigest(reference.TrimNamed(c.ref), chosen)
	if err != nil {
		return err
	}
	if _, digested := c.ref.(reference.Digested); digested {
		c.ref = named // a name by the digest of the list is not that of one image
	}
	if c.from, err = docker.NewReference(named); err != nil {
		return err
	}
	c.variant = &chosen
	_ = c.policy.Destroy() // frees memory
	c.policy, err = registry.AcceptAnything()
	return err
}
