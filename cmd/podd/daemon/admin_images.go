package daemon

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/cmd/podd/admin"
	"github.com/podd-project/podd/image"
)

// LoadImages loads the images of an archive.
func (a adminNode) LoadImages(ctx context.Context, path string) ([]admin.LoadedImage, error) {
	images, err := a.n.Images.LoadFile(ctx, path)
	return loadedImages(images), err
}

// LoadArchive loads the images of an archive that it reads.
func (a adminNode) LoadArchive(ctx context.Context, archive io.Reader) ([]admin.LoadedImage, error) {
	images, err := a.n.Images.LoadFrom(ctx, archive)
	return loadedImages(images), err
}

func loadedImages(images []*image.Image) []admin.LoadedImage {
	loaded := []admin.LoadedImage{}
	for _, i := range images {
		loaded = append(loaded, admin.LoadedImage{ID: i.ID, Names: append(slices.Clone(i.Tags), i.Digests...)})
	}
	return loaded
}

// ExportImage writes an image to a new file.
func (a adminNode) ExportImage(ctx context.Context, image, path string) error {
	return a.n.Images.Export(ctx, image, path)
}

// RemoveImage removes an image as the CRI's call does.
func (a adminNode) RemoveImage(ctx context.Context, id string) error {
	_, err := a.n.server.RemoveImage(ctx, &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: id}})
	return err
}

// RemoveUnusedLayers removes the layers of no image.
func (a adminNode) RemoveUnusedLayers() error { return a.n.Images.RemoveUnusedLayers() }

// DiskImages returns the images, the largest first.
func (a adminNode) DiskImages() admin.DiskImages {
	disk := a.n.Images.Disk()
	return admin.DiskImages{
		Layers: disk.Layers, Unused: disk.Unused, Images: admin.List[admin.DiskImage]{Items: diskImages(disk)},
	}
}

// Disk returns images and writable layers, the largest first.
func (a adminNode) Disk(ctx context.Context) (admin.Disk, error) {
	containers, err := a.diskContainers(ctx)
	return admin.Disk{
		DiskImages: a.DiskImages(), Space: a.space(), Containers: admin.List[admin.DiskContainer]{Items: containers},
	}, err
}

// space describes the filesystem of images and root filesystems, from memory.
func (a adminNode) space() admin.Space {
	fs := a.n.Images.Filesystem()
	return admin.Space{Free: fs.BytesFree, Size: fs.Bytes, InodesFree: fs.InodesFree, Inodes: fs.Inodes}
}

func diskImages(disk image.Disk) (images []admin.DiskImage) {
	for _, i := range disk.Images {
		names := i.Tags
		if len(names) == 0 {
			names = i.Digests
		}
		images = append(images, admin.DiskImage{
			ID: i.ID, Names: names, Bytes: i.Bytes, Unique: i.Unique, Pinned: i.Pinned, UsedBy: i.UsedBy,
		})
	}
	slices.SortFunc(images, func(a, b admin.DiskImage) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), strings.Compare(a.ID, b.ID))
	})
	return images
}

// diskContainers leaves out those that were not measured yet.
func (a adminNode) diskContainers(ctx context.Context) ([]admin.DiskContainer, error) {
	ids, err := a.n.Images.ContainersWithMounts(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: list root filesystems: %w", errdefs.ErrInternal, err)
	}
	var out []admin.DiskContainer
	for _, id := range ids {
		usage, ok := a.n.Images.Writable(id)
		if !ok {
			continue
		}
		one := admin.DiskContainer{ID: id, Bytes: usage.Bytes, Inodes: usage.Inodes, Measured: usage.At.UTC()}
		if c, err := a.n.Engine.Container(id); err == nil {
			one.Pod, one.Name = c.Pod().ID, podName(c.Pod())+"/"+c.Config.GetMetadata().GetName()
		}
		out = append(out, one)
	}
	slices.SortFunc(out, func(a, b admin.DiskContainer) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), strings.Compare(a.ID, b.ID))
	})
	return out, nil
}
