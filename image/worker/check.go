package worker

import (
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/storage"
)

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
