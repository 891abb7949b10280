package worker

import (
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/storage"

	"github.com/podd-project/podd/image/layers"
)

// An image's id is the digest of its configuration, which names the layers. An image with other layers than its
// configuration names would get the id of another one, and keep that from being pulled.

// checkLayers fails if a configuration does not name the tar of each layer of a manifest: the library compares only the
// digests that there are.
func checkLayers(rootfs v1.RootFS, inManifest int) error {
	if rootfs.Type != "layers" && rootfs.Type != "" {
		return fmt.Errorf("the configuration's rootfs has the type %.100q, want \"layers\": build the image again: %w",
			rootfs.Type, errdefs.ErrInvalidArgument)
	}
	if named := len(rootfs.DiffIDs); named != inManifest {
		return fmt.Errorf("the manifest has %d layers, its configuration names %d: build the image again: %w", inManifest,
			named, errdefs.ErrInvalidArgument)
	}
	for _, d := range rootfs.DiffIDs {
		if err := checkDigest(d); err != nil {
			return fmt.Errorf("a layer in the configuration: %w", err)
		}
	}
	return nil
}

// checkDigest fails for a digest that the library cannot compare.
func checkDigest(d digest.Digest) error {
	if err := d.Validate(); err != nil {
		return fmt.Errorf("digest %.100q: %w: %w", d, err, errdefs.ErrInvalidArgument)
	}
	if d.Algorithm() != digest.Canonical {
		return fmt.Errorf("digest %s: %s is not supported, only sha256: build the image with sha256: %w", d, d.Algorithm(),
			errdefs.ErrInvalidArgument)
	}
	return nil
}

// CheckChain fails if the layers of a stored image, the top first, are not those that its configuration names.
func CheckChain(config *v1.Image, chain []*storage.Layer) error {
	named := config.RootFS.DiffIDs
	if len(named) != len(chain) {
		return fmt.Errorf("the image has %d layers, its configuration names %d: %w", len(chain), len(named),
			errdefs.ErrInvalidArgument)
	}
	for i, l := range chain {
		stored := l.UncompressedDigest
		if stored == "" {
			stored = layers.ExpectedDiffID(l)
		}
		if want := named[len(named)-1-i]; stored != want {
			return fmt.Errorf("the image has the layer %s, its configuration names %s: %w", stored, want,
				errdefs.ErrInvalidArgument)
		}
	}
	return nil
}

// CheckStored fails for a stored image that no container can be made of: its configuration exceeds the limits or names
// other layers, or it is for another platform.
func CheckStored(from storage.Store, img *storage.Image) error {
	blob, err := StoredBlob(from, img.ID, storage.ImageDigestBigDataKey)
	if err != nil {
		return fmt.Errorf("read manifest: %w", err)
	}
	man, err := manifest.FromBlob(blob, manifest.GuessMIMEType(blob))
	if err != nil {
		return fmt.Errorf("read manifest: %w", err)
	}
	config, err := StoredConfig(from, img.ID, man)
	if err != nil {
		return err
	}
	if err := checkRunnable(config.Platform); err != nil {
		return err
	}
	if err := CheckConfig(&config.Config); err != nil {
		return err
	}
	var chain []*storage.Layer
	for id := img.TopLayer; id != ""; id = chain[len(chain)-1].Parent {
		layer, err := from.Layer(id)
		if err != nil {
			return fmt.Errorf("layer %s: %w", id, err)
		}
		chain = append(chain, layer)
	}
	return CheckChain(config, chain)
}
