package admin

import (
	"context"
	"net/http"
	"time"
)

// Disk is the answer to GET /disk: the disk space that images and containers take. Sizes are in bytes, and as old as
// the last measurement, which runs in the background.
type Disk struct {
	DiskImages
	Space
	// Containers have a writable layer each.
	Containers List[DiskContainer] `json:"containers"`
}

// DiskImages is the disk space that images take.
type DiskImages struct {
	Images List[DiskImage] `json:"images"`
	// Layers is the size of all layers, each counted once, although images share them.
	Layers uint64 `json:"layers"`
	// Unused is the size of layers that failed pulls have left, in addition.
	Unused uint64 `json:"unused,omitempty"`
}

// Space is the filesystem of images and root filesystems: its size, and the part that is free, in bytes and inodes.
type Space struct {
	Free       uint64 `json:"free"`
	Size       uint64 `json:"size"`
	InodesFree uint64 `json:"inodes_free"`
	// Inodes is 0 if the filesystem does not limit them.
	Inodes uint64 `json:"inodes"`
}

// DiskImage is one image, the largest is first.
type DiskImage struct {
	ID string `json:"id"`
	// Names are its tags, or its names by digest if there is no tag.
	Names []string `json:"names"`
	// Bytes is the size of its layers. Unique is the part of it in no other image: what removing the image would free.
	Bytes  uint64 `json:"bytes"`
	Unique uint64 `json:"unique"`
	Pinned bool   `json:"pinned,omitempty"`
	// UsedBy is the number of containers that have a filesystem of the image.
	UsedBy int `json:"used_by"`
}

// DiskContainer is the writable layer of a container, the largest is first.
type DiskContainer struct {
	ID string `json:"id"`
	// Pod is the id of its pod, Name is namespace/pod/container; both empty if the container is not known.
	Pod   string `json:"pod,omitempty"`
	Name  string `json:"name,omitempty"`
	Bytes uint64 `json:"bytes"`
	// Inodes is the number of files and directories.
	Inodes   uint64    `json:"inodes"`
	Measured time.Time `json:"measured"`
}

func (rt router) disk(n Node) {
	rt.answer(http.MethodGet, "/disk", timeout, func(ctx context.Context, r *http.Request) (any, error) {
		limit, err := intParam(r, "limit", defaultLimit, MaxLimit)
		if err != nil {
			return nil, err
		}
		d, err := n.Disk(ctx)
		d.Images, d.Containers = first(d.Images.Items, limit), first(d.Containers.Items, limit)
		return d, err
	})
}
