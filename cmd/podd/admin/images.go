package admin

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/containerd/errdefs"
)

// copyTimeout bounds copying an archive of any size from or to a disk.
const copyTimeout = time.Hour

// LoadRequest is the request of POST /images/load.
type LoadRequest struct {
	// Path is the absolute path of an OCI layout, an OCI archive or a docker archive on the daemon's node.
	Path string `json:"path"`
}

// Loaded is the answer to POST /images/load.
type Loaded struct {
	Images []LoadedImage `json:"images"`
}

// LoadedImage is an image that was loaded, or was there already.
type LoadedImage struct {
	ID    string   `json:"id"`
	Names []string `json:"names"`
}

// uploadPath is where an archive itself is sent. The answer is Loaded.
const uploadPath = "/images/upload"

// ExportRequest is the request of POST /images/export.
type ExportRequest struct {
	// Image is a name or an id.
	Image string `json:"image"`
	// Path is the absolute path of a new file on the daemon's node.
	Path string `json:"path"`
}

// PruneRequest is the request of POST /images/prune.
type PruneRequest struct {
	// DryRun removes nothing.
	DryRun bool `json:"dry_run,omitempty"`
}

// Pruned is the answer to POST /images/prune: the images that no container uses and that are not pinned.
type Pruned struct {
	// Images are those that were removed, or would be.
	Images []DiskImage `json:"images"`
	// Unused is the size of the layers of no image that were removed too, or would be.
	Unused uint64 `json:"unused,omitempty"`
	// Failed says why others could not be removed: a container may have been created by then.
	Failed []string `json:"failed,omitempty"`
}

func (rt router) images(n Node) {
	rt.answer(http.MethodPost, "/images/load", copyTimeout, func(ctx context.Context, r *http.Request) (any, error) {
		var req LoadRequest
		if err := decode(r, &req); err != nil {
			return nil, err
		}
		images, err := n.LoadImages(ctx, req.Path)
		return Loaded{images}, err
	})
	rt.answerUpTo(math.MaxInt64, http.MethodPost, uploadPath, copyTimeout,
		func(ctx context.Context, r *http.Request) (any, error) {
			images, err := n.LoadArchive(ctx, r.Body)
			return Loaded{images}, err
		})
	rt.answer(http.MethodPost, "/images/export", copyTimeout, func(ctx context.Context, r *http.Request) (any, error) {
		var req ExportRequest
		if err := decode(r, &req); err != nil {
			return nil, err
		}
		if req.Image == "" {
			return nil, fmt.Errorf("%w: image: is empty, want a name or an id", errdefs.ErrInvalidArgument)
		}
		return nil, n.ExportImage(ctx, req.Image, req.Path)
	})
	rt.answer(http.MethodPost, "/images/prune", copyTimeout, func(ctx context.Context, r *http.Request) (any, error) {
		var req PruneRequest
		if err := decode(r, &req); err != nil {
			return nil, err
		}
		return prune(ctx, n, req.DryRun)
	})
}

// prune removes the images that are neither used nor pinned, and the layers of no image, with dry only says which.
func prune(ctx context.Context, n Node, dry bool) (Pruned, error) {
	disk := n.DiskImages()
	p := Pruned{Images: []DiskImage{}, Unused: disk.Unused}
	for _, i := range disk.Images.Items {
		if i.Pinned || i.UsedBy > 0 {
			continue
		}
		if err := ctx.Err(); err != nil {
			return p, context.Cause(ctx)
		}
		if !dry {
			if err := n.RemoveImage(ctx, i.ID); err != nil {
				p.Failed = append(p.Failed, err.Error())
				continue
			}
		}
		p.Images = append(p.Images, i)
	}
	if !dry {
		if err := n.RemoveUnusedLayers(); err != nil {
			p.Failed = append(p.Failed, err.Error())
		}
	}
	return p, nil
}
