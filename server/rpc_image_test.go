package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/podd-project/podd/image"
)

func wantImage() *cri.Image {
	return &cri.Image{
		Id: imageID, RepoTags: []string{"example.com/other:1", imageTag}, RepoDigests: []string{imageDgst}, Size: 4096,
		Uid:    &cri.Int64Value{Value: 1000},
		Spec:   &cri.ImageSpec{Image: "example.com/other:1", Annotations: map[string]string{"a": "b"}},
		Pinned: true,
	}
}

func testListImages(t *testing.T) {
	h := newHarness(t)
	for name, tt := range map[string]struct {
		filter *cri.ImageFilter
		want   int
	}{
		"all":              {nil, 1},
		"empty filter":     {&cri.ImageFilter{Image: &cri.ImageSpec{}}, 1},
		"by tag":           {&cri.ImageFilter{Image: &cri.ImageSpec{Image: imageTag}}, 1},
		"by id":            {&cri.ImageFilter{Image: &cri.ImageSpec{Image: imageID}}, 1},
		"of another image": {&cri.ImageFilter{Image: &cri.ImageSpec{Image: "absent:1"}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := must[*cri.ListImagesResponse](t)(h.image.ListImages(t.Context(), &cri.ListImagesRequest{Filter: tt.filter}))
			if len(r.GetImages()) != tt.want {
				t.Fatalf("got %v, want %d images", r.GetImages(), tt.want)
			}
			if tt.want == 1 && !proto.Equal(r.GetImages()[0], wantImage()) {
				t.Errorf("got  %v\nwant %v", r.GetImages()[0], wantImage())
			}
		})
	}
	_, err := h.image.ListImages(
		t.Context(), &cri.ListImagesRequest{Filter: &cri.ImageFilter{Image: &cri.ImageSpec{Image: "a b"}}},
	)
	wantCode(t, err, codes.InvalidArgument, "filter.image.image")
	h.images.fail["List"] = errors.New("disk on fire")
	_, err = h.image.ListImages(t.Context(), &cri.ListImagesRequest{})
	wantCode(t, err, codes.Unknown, "disk on fire")
	h.images.fail["Resolve"] = errors.New("disk on fire")
	_, err = h.image.ListImages(
		t.Context(), &cri.ListImagesRequest{Filter: &cri.ImageFilter{Image: &cri.ImageSpec{Image: imageTag}}},
	)
	wantCode(t, err, codes.Unknown, "disk on fire")
}

func testStreamImages(t *testing.T) {
	h := newHarness(t)
	for name, tt := range map[string]struct {
		filter *cri.ImageFilter
		want   int
	}{
		"all":    {nil, 1},
		"absent": {&cri.ImageFilter{Image: &cri.ImageSpec{Image: "absent:1"}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := h.image.StreamImages(t.Context(), &cri.StreamImagesRequest{Filter: tt.filter})
			if err != nil {
				t.Fatal(err)
			}
			got, _ := receive(t, s, (*cri.StreamImagesResponse).GetImages)
			if len(got) != tt.want || tt.want == 1 && !proto.Equal(got[0], wantImage()) {
				t.Errorf("got %v, want %d images such as %v", got, tt.want, wantImage())
			}
		})
	}
	for want, filter := range map[codes.Code]*cri.ImageFilter{
		codes.InvalidArgument: {Image: &cri.ImageSpec{Image: "a\x00b"}},
		codes.Unknown:         nil,
	} {
		h.images.fail["List"] = errors.New("boom")
		s, err := h.image.StreamImages(t.Context(), &cri.StreamImagesRequest{Filter: filter})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Recv()
		wantCode(t, err, want)
	}
}

func testImageStatus(t *testing.T) {
	h := newHarness(t)
	for _, ref := range []string{imageTag, imageID, "sha256:" + imageID, imageDgst} {
		r := must[*cri.ImageStatusResponse](t)(
			h.image.ImageStatus(t.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: ref}}),
		)
		if !proto.Equal(r.GetImage(), wantImage()) || len(r.GetInfo()) != 0 {
			t.Errorf("status of %s = %v, want %v without info", ref, r, wantImage())
		}
	}
	r := must[*cri.ImageStatusResponse](t)(h.image.ImageStatus(
		t.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: imageTag}, Verbose: true},
	))
	if text := r.GetInfo()["info"]; !json.Valid([]byte(text)) || !strings.Contains(text, `"Cmd":["sh"]`) {
		t.Errorf("info = %s, want JSON with the command", text)
	}
	r = must[*cri.ImageStatusResponse](t)(h.image.ImageStatus(
		t.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: "absent"}, Verbose: true},
	))
	if r.GetImage() != nil {
		t.Errorf("status of an absent image = %v, want none", r.GetImage())
	}
	h.images.fail["Resolve"] = fmt.Errorf("%w: that is no reference", errdefs.ErrInvalidArgument)
	_, err := h.image.ImageStatus(t.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: "A:B:C"}})
	wantCode(t, err, codes.InvalidArgument, "no reference")
}

func TestImageUser(t *testing.T) {
	for user, want := range map[string]struct {
		uid  int64 // -1: none
		name string
	}{
		"":             {-1, ""},
		"0":            {0, ""},
		"1000":         {1000, ""},
		"1000:50":      {1000, ""},
		"1000:users":   {1000, ""},
		"www":          {-1, "www"},
		"www:www":      {-1, "www"},
		":50":          {-1, ""},
		"4294967294":   {4294967294, ""},
		"4294967295":   {-1, "4294967295"}, // (uid_t)-1
		"4294967296":   {-1, "4294967296"}, // would wrap to root
		"-1":           {-1, "-1"},
		"+0":           {-1, "+0"},
		"0x0":          {-1, "0x0"},
		" 0":           {-1, " 0"},
		"999999999999": {-1, "999999999999"},
	} {
		uid, name := imageUser(user)
		got := int64(-1)
		if uid != nil {
			got = uid.GetValue()
		}
		if got != want.uid || name != want.name {
			t.Errorf("imageUser(%q) = %d, %q, want %d, %q", user, got, name, want.uid, want.name)
		}
	}
}

func TestImageWithoutNames(t *testing.T) {
	for want, img := range map[string]*image.Image{
		imageDgst: {ID: imageID, Digests: []string{imageDgst}},
		imageID:   {ID: imageID},
	} {
		got := imageItem(img)
		if got.GetSpec().GetImage() != want || got.GetSize() == 0 {
			t.Errorf("got %v, want the name %s and some size", got, want)
		}
	}
}

func testPullImage(t *testing.T) {
	h := newHarness(t)
	req := &cri.PullImageRequest{
		Image: &cri.ImageSpec{Image: imageTag, RuntimeHandler: "crun", Annotations: map[string]string{"flavor": "x"}},
		Auth: &cri.AuthConfig{
			Username: "u", Password: "p", Auth: "dTpw", ServerAddress: "s", IdentityToken: "i", RegistryToken: "r",
		},
		SandboxConfig: goodPod(),
	}
	r := must[*cri.PullImageResponse](t)(h.image.PullImage(t.Context(), req))
	if r.GetImageRef() != imageID {
		t.Errorf("image_ref %q, want the image's id", r.GetImageRef())
	}
	want := image.PullRequest{Ref: imageTag, Namespace: "default"}
	wantAuth := image.Auth{
		Username: "u", Password: "p", Auth: "dTpw", ServerAddress: "s", IdentityToken: "i", RegistryToken: "r",
	}
	got := h.images.pull
	if *got.Auth != wantAuth || got.Ref != want.Ref || got.Namespace != want.Namespace ||
		got.Annotations["flavor"] != "x" {
		t.Errorf("store got %+v with %+v, want %+v with %+v", got, got.Auth, want, wantAuth)
	}
	t.Run("without credentials", func(t *testing.T) {
		for _, auth := range []*cri.AuthConfig{nil, {}, {ServerAddress: "only.an.address"}} {
			must[*cri.PullImageResponse](t)(h.image.PullImage(
				t.Context(), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: imageTag}, Auth: auth},
			))
			if h.images.pull.Auth != nil {
				t.Errorf("%v: store got %v, want no credentials", auth, h.images.pull.Auth)
			}
		}
	})
	t.Run("unknown handler", func(t *testing.T) {
		_, err := h.image.PullImage(
			t.Context(), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: imageTag, RuntimeHandler: "kata"}},
		)
		wantCode(t, err, codes.InvalidArgument, "image.runtime_handler")
	})
	t.Run("errors", testPullErrors)
}

// testPullErrors: the kubelet recognises reasons only as prefixes of errors of code Unknown.
func testPullErrors(t *testing.T) {
	for _, tt := range []struct {
		fail   error
		code   codes.Code
		prefix string
	}{
		{
			fmt.Errorf("pull x: %w", image.ErrRegistryUnavailable), codes.Unknown,
			crierrors.ErrRegistryUnavailable.Error() + ": pull x: ",
		},
		{
			fmt.Errorf("pull x: %w", image.ErrSignatureInvalid), codes.Unknown,
			crierrors.ErrSignatureValidationFailed.Error() + ": pull x: ",
		},
		{fmt.Errorf("pull x: %w", errdefs.ErrNotFound), codes.NotFound, "pull x: "},
		{fmt.Errorf("pull x: %w", errdefs.ErrUnauthenticated), codes.Unauthenticated, "pull x: "},
		{fmt.Errorf("pull x: %w", errdefs.ErrPermissionDenied), codes.PermissionDenied, "pull x: "},
	} {
		h := newHarness(t)
		h.images.fail["Pull"] = tt.fail
		_, err := h.image.PullImage(t.Context(), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: imageTag}})
		wantCode(t, err, tt.code, tt.prefix)
	}
}

func testRemoveImage(t *testing.T) {
	for name, tt := range map[string]struct {
		ref    string
		change func(*harness)
		code   codes.Code
		remove bool
	}{
		"by tag, all names go": {imageTag, nil, codes.OK, true},
		"by id":                {imageID, nil, codes.OK, true},
		"absent":               {strings.Repeat("0", 64), nil, codes.OK, false},
		"in use": {imageTag, func(h *harness) { h.engine.inUse[imageID] = []string{runningID} },
			codes.FailedPrecondition, false},
		"removed by another call meanwhile": {imageTag, func(h *harness) { h.images.fail["Remove"] = errdefs.ErrNotFound },
			codes.OK, true},
		"failing": {imageTag, func(h *harness) { h.images.fail["Remove"] = errors.New("x") }, codes.Unknown, true},
		"not even readable": {
			imageTag, func(h *harness) { h.images.fail["Resolve"] = errors.New("x") }, codes.Unknown, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			if tt.change != nil {
				tt.change(h)
			}
			_, err := h.image.RemoveImage(t.Context(), &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: tt.ref}})
			wantCode(t, err, tt.code)
			if removed := slices.Contains(h.images.log(), "Remove "+imageID); removed != tt.remove {
				t.Errorf("calls %q, want a removal: %v", h.images.log(), tt.remove)
			}
		})
	}
}

func testImageFsInfo(t *testing.T) {
	h := newHarness(t)
	r := must[*cri.ImageFsInfoResponse](t)(h.image.ImageFsInfo(t.Context(), &cri.ImageFsInfoRequest{}))
	fs := func(mount string, bytes, inodes uint64) *cri.FilesystemUsage {
		return &cri.FilesystemUsage{
			Timestamp: created.UnixNano(), FsId: &cri.FilesystemIdentifier{Mountpoint: mount},
			UsedBytes: &cri.UInt64Value{Value: bytes}, InodesUsed: &cri.UInt64Value{Value: inodes},
		}
	}
	want := &cri.ImageFsInfoResponse{
		ImageFilesystems:     []*cri.FilesystemUsage{fs("/var/lib/podd/storage", 10, 11)},
		ContainerFilesystems: []*cri.FilesystemUsage{fs("/var/lib/podd/containers", 20, 21)},
	}
	if !proto.Equal(r, want) {
		t.Errorf("got  %v\nwant %v", r, want)
	}
	h.images.fail["Usage"] = errors.New("x")
	_, err := h.image.ImageFsInfo(t.Context(), &cri.ImageFsInfoRequest{})
	wantCode(t, err, codes.Unknown)
}

// TestListOfLargeImages: 1,000 images with the most that the store keeps of each fit into one message.
func TestListOfLargeImages(t *testing.T) {
	h := newHarness(t)
	h.images.images = nil
	for i := range 1000 {
		name := fmt.Sprintf("example.com/%s-%d", strings.Repeat("n", 230), i)
		h.images.images = append(h.images.images, &image.Image{
			ID: fmt.Sprintf("%064x", i), Tags: []string{name + ":" + strings.Repeat("t", 128)},
			Digests:     []string{name + "@sha256:" + strings.Repeat("d", 64)},
			Config:      imagespec.ImageConfig{User: strings.Repeat("u", 256)},
			Annotations: map[string]string{"a": strings.Repeat("a", 64<<10-1)},
		})
	}
	listed := must[*cri.ListImagesResponse](t)(h.image.ListImages(t.Context(), &cri.ListImagesRequest{})).GetImages()
	if len(listed) != 1000 || len(listed[0].GetSpec().GetAnnotations()) != 0 {
		t.Errorf("ListImages: %d images, the first with %d annotations, want 1000 and none",
			len(listed), len(listed[0].GetSpec().GetAnnotations()))
	}
	one := must[*cri.ImageStatusResponse](t)(
		h.image.ImageStatus(t.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: h.images.images[0].ID}}))
	if got := one.GetImage().GetSpec().GetAnnotations(); len(got) != 1 {
		t.Errorf("ImageStatus: %d annotations, want 1", len(got))
	}
}

// TestImageIdentifiers: four fields of cri-api must have the same id of an image.
func TestImageIdentifiers(t *testing.T) {
	h := newHarness(t)
	pulled := must[*cri.PullImageResponse](t)(
		h.image.PullImage(t.Context(), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: imageTag}}),
	).GetImageRef()
	listed := must[*cri.ListImagesResponse](t)(
		h.image.ListImages(t.Context(), &cri.ListImagesRequest{}),
	).GetImages()[0].GetId()
	item := must[*cri.ListContainersResponse](t)(
		h.runtime.ListContainers(t.Context(), &cri.ListContainersRequest{}),
	).GetContainers()[0]
	s := must[*cri.ContainerStatusResponse](t)(
		h.runtime.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: runningID}),
	).GetStatus()
	for name, got := range map[string]string{
		"PullImage": pulled, "ListImages": listed, "ListContainers": item.GetImageId(), "ContainerStatus": s.GetImageId(),
	} {
		if got != imageID {
			t.Errorf("id in %s = %q, want %q", name, got, imageID)
		}
	}
	if item.GetImageRef() != s.GetImageRef() || !proto.Equal(item.GetImage(), s.GetImage()) {
		t.Errorf("ListContainers: image %v, ref %q, want those of ContainerStatus, %v, %q",
			item.GetImage(), item.GetImageRef(), s.GetImage(), s.GetImageRef())
	}
}
