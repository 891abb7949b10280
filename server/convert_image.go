package server

import (
	"context"
	"math"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/sandbox/record"
)

// maxListedAnnotations bounds the annotations of an image in a list, in bytes. A list of 1,000 images must fit into one
// message (16 MiB); the status of one image has all annotations.
const maxListedAnnotations = 4 << 10

// listedImage is imageItem for a list: without annotations if they are large.
func listedImage(img *image.Image) *cri.Image {
	item := imageItem(img)
	bytes := 0
	for key, value := range img.Annotations {
		bytes += len(key) + len(value)
	}
	if bytes > maxListedAnnotations {
		item.Spec.Annotations = nil
	}
	return item
}

func imageItem(img *image.Image) *cri.Image {
	uid, username := imageUser(img.Config.User)
	return &cri.Image{
		Id:          img.ID,
		RepoTags:    img.Tags,
		RepoDigests: img.Digests,
		Size:        max(img.Size, 1), // CRI requires more than 0; an image may have no layers
		Uid:         uid,
		Username:    username,
		Spec:        &cri.ImageSpec{Image: imageName(img), Annotations: img.Annotations},
		Pinned:      img.Pinned,
	}
}

// imageName returns a tag of the image, else a digest, else the id.
func imageName(img *image.Image) string {
	switch {
	case len(img.Tags) > 0:
		return img.Tags[0]
	case len(img.Digests) > 0:
		return img.Digests[0]
	}
	return img.ID
}

// imageUser parses the config's "user[:group]" into either a uid or a name. The kubelet checks runAsNonRoot by it, so a
// number that is not a valid uid is returned as a name, which the kubelet refuses.
func imageUser(user string) (uid *cri.Int64Value, username string) {
	name, _, _ := strings.Cut(user, ":")
	if name == "" {
		return nil, ""
	}
	if n, err := strconv.ParseUint(name, 10, 32); err == nil && n != math.MaxUint32 {
		return &cri.Int64Value{Value: int64(n)}, ""
	}
	return nil, name
}

// imageInfo is the verbose part of an image's status.
func imageInfo(img *image.Image) map[string]any {
	return map[string]any{
		"imageSpec": map[string]any{"created": img.Created, "config": img.Config},
	}
}

func filesystems(usages []image.FsUsage) []*cri.FilesystemUsage {
	var out []*cri.FilesystemUsage
	for _, u := range usages {
		out = append(out, &cri.FilesystemUsage{
			Timestamp:  u.At.UnixNano(),
			FsId:       &cri.FilesystemIdentifier{Mountpoint: u.Mountpoint},
			UsedBytes:  &cri.UInt64Value{Value: u.Bytes},
			InodesUsed: &cri.UInt64Value{Value: u.Inodes},
		})
	}
	return out
}

// imageFinder resolves the images of containers, each once.
type imageFinder struct {
	resolve func(id string) (*image.Image, error)
	known   map[string]*image.Image
}

func (s *Server) imageFinder(ctx context.Context) imageFinder {
	return imageFinder{
		resolve: func(id string) (*image.Image, error) { return s.deps.Images.Resolve(ctx, id) },
		known:   map[string]*image.Image{},
	}
}

// image returns nil if the image is removed or cannot be read.
func (f imageFinder) image(id string) *image.Image {
	img, ok := f.known[id]
	if !ok && id != "" {
		if found, err := f.resolve(id); err == nil {
			img = found
		}
		f.known[id] = img
	}
	return img
}

// digestedName returns the value of image_ref: the image's name with a digest, or its id if it has none.
func digestedName(id string, img *image.Image) string {
	if img != nil && len(img.Digests) > 0 {
		return img.Digests[0]
	}
	return id
}

// usedImage returns the image as the container requested it. The kubelet requests it by id; the id is replaced by the
// name in the pod's spec or, if the image does not have it, another name of the image. The handler is unset as in lists
// of images: all handlers share images, and the kubelet's garbage collection compares the two.
func usedImage(r *record.Container, img *image.Image) *cri.ImageSpec {
	requested := r.Config.GetImage()
	if requested.GetRuntimeHandler() != "" {
		requested = proto.CloneOf(requested)
		requested.RuntimeHandler = ""
	}
	if img == nil || strings.TrimPrefix(requested.GetImage(), "sha256:") != r.ImageID {
		return requested
	}
	named := proto.CloneOf(requested)
	named.Image = imageName(img)
	for _, tag := range img.Tags {
		if user := requested.GetUserSpecifiedImage(); tag == user || strings.HasSuffix(tag, "/"+user) {
			named.Image = tag
		}
	}
	return named
}
