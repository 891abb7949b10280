package worker

import (
	"path/filepath"

	"go.podman.io/image/v5/types"

	"github.com/podd-project/podd/image/registry"
)

// Names below Layout.Root, next to those of containers/storage.
const (
	tempDir       = "tmp"
	cacheDir      = "cache"
	rootfsDir     = "rootfs"
	integrityFile = "integrity.json"
	preloadedFile = "preloaded.json"
	ballastFile   = "ballast"
)

// Layout is where a store keeps its files. Pulls use Temp and Cache, and must not change Rootfs, Integrity,
// Preloaded and Ballast.
type Layout struct {
	// Root holds images, and the root filesystems of containers, across reboots. RunRoot holds locks; it is emptied by a
	// reboot.
	Root, RunRoot string
}

// Temp holds the layers that are being fetched. It is emptied at start.
func (l Layout) Temp() string { return filepath.Join(l.Root, tempDir) }

// Cache records which registry has which blob.
func (l Layout) Cache() string { return filepath.Join(l.Root, cacheDir) }

// Rootfs holds the root filesystems and image volumes of containers.
func (l Layout) Rootfs() string { return filepath.Join(l.Root, rootfsDir) }

// Integrity is a file with the corrupt layers.
func (l Layout) Integrity() string { return filepath.Join(l.Root, integrityFile) }

// Preloaded is a file with the images that were loaded from each file of the preload directory.
func (l Layout) Preloaded() string { return filepath.Join(l.Root, preloadedFile) }

// Ballast is a file whose space a removal may take.
func (l Layout) Ballast() string { return filepath.Join(l.Root, ballastFile) }

// Images holds the records of images.
func (l Layout) Images() string { return filepath.Join(l.Root, "overlay-images") }

// ImageList is the file that storage replaces at every change of its list of images.
func (l Layout) ImageList() string { return filepath.Join(l.Images(), "images.json") }

// Layers holds the records of layers.
func (l Layout) Layers() string { return filepath.Join(l.Root, "overlay-layers") }

// LayerFiles is the directory with the files of a layer.
func (l Layout) LayerFiles(layer string) string {
	return filepath.Join(l.Root, "overlay", layer, "diff")
}

// SystemContext configures containers/image to copy images. Large files are made in temp.
func (l Layout) SystemContext(cfg registry.Config, temp string) *types.SystemContext {
	sys := cfg.SystemContext()
	sys.BlobInfoCacheDir, sys.BigFilesTemporaryDir = l.Cache(), temp
	return sys
}
