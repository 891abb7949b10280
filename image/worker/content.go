package worker

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/storage"
)

// LayersOfChain returns the layers in an image's manifest, one for each id of chain.
func LayersOfChain(from storage.Store, id string, chain []string) ([]manifest.LayerInfo, error) {
	blobs, err := layerBlobs(from, id)
	if err == nil && len(blobs) != len(chain) {
		err = fmt.Errorf("repair image %s: it has %d layers, its manifest %d", id, len(chain), len(blobs))
	}
	return blobs, err
}

// ChainOf returns the ids of an image's layers, bottom first.
func ChainOf(from storage.Store, img *storage.Image) ([]string, error) {
	var ids []string
	for id := img.TopLayer; id != ""; {
		layer, err := from.Layer(id)
		if err != nil {
			return nil, fmt.Errorf("layer %s: %w", id, err)
		}
		ids = append(ids, id)
		id = layer.Parent
	}
	slices.Reverse(ids)
	return ids, nil
}

// layerBlobs returns the layers in an image's manifest, bottom first.
func layerBlobs(from storage.Store, id string) ([]manifest.LayerInfo, error) {
	blob, err := StoredBlob(from, id, storage.ImageDigestBigDataKey)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	man, err := manifest.FromBlob(blob, manifest.GuessMIMEType(blob))
	if err != nil {
		return nil, fmt.Errorf("parse manifest: %w", err)
	}
	return slices.DeleteFunc(man.LayerInfos(), func(l manifest.LayerInfo) bool { return l.EmptyLayer }), nil
}

// StoredConfig reads the image's configuration blob.
func StoredConfig(from storage.Store, id string, man manifest.Manifest) (*v1.Image, error) {
	key := man.ConfigInfo().Digest.String()
	if key == "" {
		return &v1.Image{}, nil // docker schema 1 has none
	}
	blob, err := StoredBlob(from, id, key)
	if err != nil {
		return nil, fmt.Errorf("read config: %w", err)
	}
	if digest.FromBytes(blob).String() != key {
		return nil, fmt.Errorf("the stored config does not have the digest %s", key)
	}
	config := &v1.Image{}
	if err := json.Unmarshal(blob, config); err != nil {
		return nil, fmt.Errorf("parse config: %w", err)
	}
	return config, nil
}

// StoredBlob reads one of an image's data items, unless it is too large.
func StoredBlob(from storage.Store, id, key string) ([]byte, error) {
	size, err := from.ImageBigDataSize(id, key)
	if err != nil {
		return nil, err
	}
	if size > MaxBlob {
		return nil, fmt.Errorf("%q has %d bytes, more than %d", key, size, MaxBlob)
	}
	return from.ImageBigData(id, key)
}
