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

func imageItem(img *image.Image) *cri.Image {
	uid, username := imageUser(img.Config.User)
	return &cri.Image{
		Id:          img.ID,
		RepoTags:    img.Tags,
		RepoDigests: img.Digests,
		Size:        max(img.Size, 1), // the proto wants more than 0, an image without layers has it not
		Uid:         uid,
		Username:    username,
		Spec:        &cri.ImageSpec{Image: imageName(img), Annotations: img.Annotations},
		Pinned:      img.Pinned,
	}
}

// imageName is the name by which people know the image: a tag, else a digest, else the id.
func imageName(img *image.Image) string {
	switch {
	case len(img.Tags) > 0:
		return img.Tags[0]
	case len(img.Digests) > 0:
		return img.Digests[0]
	}
	return img.ID
}

// imageUser splits the config's "user[:group]": a number that is a uid, or a name, never both. The kubelet decides
// runAsNonRoot by this, so a number that is no uid must not pass for one: it stays a name, which the kubelet
// refuses.
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

// imageInfo is the verbose part of an image's status, for people.
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

// imageFinder finds the images of containers, asking the store once for each.
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

// image is nil when the image is gone or cannot be read: a container is shown without.
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

// digestedName is image_ref: the image's name by digest, and its id when it has none.
func digestedName(id string, img *image.Image) string {
	if img != nil && len(img.Digests) > 0 {
		return img.Digests[0]
	}
	return id
}

// usedImage is the image as the container asked for it. The kubelet asks by id, which tells people nothing, so the
// id is replaced by the name that the user wrote or, without that, one that the image has. It has no handler, as the
// images of lists have none: all handlers share them, and the kubelet's garbage collection compares.
func usedImage(r *record.Container, img *image.Image) *cri.ImageSpec {
	asked := r.Config.GetImage()
	if asked.GetRuntimeHandler() != "" {
		asked = proto.CloneOf(asked)
		asked.RuntimeHandler = ""
	}
	if img == nil || strings.TrimPrefix(asked.GetImage(), "sha256:") != r.ImageID {
		return asked
	}
	named := proto.CloneOf(asked)
	named.Image = imageName(img)
	for _, tag := range img.Tags {
		if user := asked.GetUserSpecifiedImage(); tag == user || strings.HasSuffix(tag, "/"+user) {
			named.Image = tag
		}
	}
	return named
}
