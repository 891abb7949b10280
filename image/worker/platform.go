package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	containersimage "go.podman.io/image/v5/image"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/image/v5/types"
	"go.podman.io/storage"
)

// checkSource fails for an image that this node cannot run, before any layer is fetched. Of a list of images only the
// list is read here; CheckStored checks the one that was chosen.
func checkSource(ctx context.Context, sys *types.SystemContext, source types.ImageSource) error {
	blob, mime, err := source.GetManifest(ctx, nil)
	if err != nil {
		return err
	}
	if manifest.MIMETypeIsMultiImage(mime) {
		return checkList(sys, blob, mime)
	}
	img, err := containersimage.FromUnparsedImage(ctx, sys, containersimage.UnparsedInstance(source, nil))
	if err != nil {
		return fmt.Errorf("read manifest: %w", err)
	}
	config, err := img.OCIConfig(ctx)
	if err != nil {
		var artifact manifest.NonImageArtifactError
		if errors.As(err, &artifact) {
			return fmt.Errorf("not a container image: %w: %w", err, errdefs.ErrInvalidArgument)
		}
		return fmt.Errorf("read config: %w", err)
	}
	if err := checkRunnable(config.Platform); err != nil {
		return err
	}
	return CheckConfig(&config.Config)
}

// checkList fails if a list has no image for this node.
func checkList(sys *types.SystemContext, blob []byte, mime string) error {
	list, err := manifest.ListFromBlob(blob, mime)
	if err != nil {
		return fmt.Errorf("read manifest list: %w", err)
	}
	if _, err := list.ChooseInstance(sys); err == nil {
		return nil
	}
	return platformError(listPlatforms(blob))
}

// maxPlatforms bounds how many platforms of a list an error names.
const maxPlatforms = 16

// listPlatforms returns the platforms in a list of images. OCI's and docker's lists agree on the fields.
func listPlatforms(blob []byte) []string {
	var list v1.Index
	if err := json.Unmarshal(blob, &list); err != nil {
		return nil
	}
	var out []string
	for _, m := range list.Manifests {
		if m.Platform == nil || m.Platform.OS == "unknown" { // attestations have unknown/unknown
			continue
		}
		if name := platformName(*m.Platform); !slices.Contains(out, name) && len(out) < maxPlatforms {
			out = append(out, name)
		}
	}
	return out
}

// checkRunnable fails if an image of platform p does not run here. An image without a platform passes.
func checkRunnable(p v1.Platform) error {
	if (p.OS == "" || p.OS == runtime.GOOS) && (p.Architecture == "" || runsOn(runtime.GOARCH, p.Architecture)) {
		return nil
	}
	return platformError([]string{platformName(p)})
}

// runsOn reports whether a CPU runs the binaries of an image: 64-bit kernels run the 32-bit ones too.
func runsOn(node, image string) bool {
	return node == image || node == "amd64" && image == "386" || node == "arm64" && image == "arm"
}

func platformName(p v1.Platform) string {
	name := p.OS + "/" + p.Architecture
	if p.Variant != "" {
		name += "/" + p.Variant
	}
	return name
}

func platformError(available []string) error {
	if len(available) == 0 {
		available = []string{"no known platform"}
	}
	return fmt.Errorf("image is for %s, this node is %s/%s: %w",
		strings.Join(available, ", "), runtime.GOOS, runtime.GOARCH, errdefs.ErrInvalidArgument)
}

// CheckStored fails for a stored image that no container can be made of: its configuration exceeds the limits, or it is
// for another platform, as a list can be wrong about its images.
func CheckStored(from storage.Store, id string) error {
	blob, err := StoredBlob(from, id, storage.ImageDigestBigDataKey)
	if err != nil {
		return fmt.Errorf("read manifest: %w", err)
	}
	man, err := manifest.FromBlob(blob, manifest.GuessMIMEType(blob))
	if err != nil {
		return fmt.Errorf("read manifest: %w", err)
	}
	config, err := StoredConfig(from, id, man)
	if err != nil {
		return err
	}
	if err := checkRunnable(config.Platform); err != nil {
		return err
	}
	return CheckConfig(&config.Config)
}
