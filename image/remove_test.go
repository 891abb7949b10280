package image_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/image"
)

func TestRemoveTakesAllNames(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	img := simple(t, "x")
	digest := reg.push(t, "app:a", img)
	reg.push(t, "app:b", img)
	s := open(t, config(t, reg.host))
	for name, ref := range map[string]string{
		"tag": reg.host + "/app:a", "digest": reg.host + "/app@" + digest, "id": imageID(t, img),
		"short id": imageID(t, img)[:12],
	} {
		pull(t, s, reg.host+"/app:a")
		pull(t, s, reg.host+"/app:b")
		if err := s.Remove(t.Context(), ref); err != nil {
			t.Errorf("Remove by %s = %v, want no error", name, err)
		}
		checkEmpty(t, s)
		if err := s.Remove(t.Context(), ref); err != nil {
			t.Errorf("second Remove by %s = %v, want no error", name, err)
		}
	}
	if err := s.Remove(t.Context(), "Not A Reference"); !errdefs.IsInvalidArgument(err) {
		t.Errorf("error %v, want invalid argument", err)
	}
}

// TestRemoveKeepsSharedLayers: layers of another image stay.
func TestRemoveKeepsSharedLayers(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	base := tree{"base": "b"}
	reg.push(t, "one:v1", craft(t, nil, base, tree{"own": "1"}))
	reg.push(t, "two:v1", craft(t, nil, base, tree{"own": "2"}))
	s := open(t, config(t, reg.host))
	pull(t, s, reg.host+"/one:v1")
	two := pull(t, s, reg.host+"/two:v1")
	if err := s.Remove(t.Context(), reg.host+"/one:v1"); err != nil {
		t.Fatal(err)
	}
	path, err := s.Rootfs(t.Context(), image.RootfsRequest{ContainerID: "c", ImageID: two.ID})
	if err != nil {
		t.Fatal(err)
	}
	checkFile(t, path+"/base", "b")
	checkFile(t, path+"/own", "2")
}

func TestRemoveInUse(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	reg.push(t, "app:v1", simple(t, "x"))
	s := open(t, config(t, reg.host))
	img := pull(t, s, reg.host+"/app:v1")
	if _, err := s.Rootfs(t.Context(), image.RootfsRequest{ContainerID: "by-rootfs", ImageID: img.ID}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Volume(t.Context(), image.VolumeRequest{ContainerID: "by-volume", ImageID: img.ID}); err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"by-rootfs", "by-volume"} {
		err := s.Remove(t.Context(), reg.host+"/app:v1")
		if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), user) {
			t.Errorf("error %v, want failed precondition that names %s", err, user)
		}
		if err := s.Release(t.Context(), user); err != nil {
			t.Error(err)
		}
	}
	if err := s.Remove(t.Context(), reg.host+"/app:v1"); err != nil {
		t.Error(err)
	}
	checkEmpty(t, s)
}

// TestRemoveOrUse: in either order, a container never gets a filesystem whose image is being deleted.
func TestRemoveOrUse(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	reg.push(t, "app:v1", simple(t, "content"))
	s := open(t, config(t, reg.host))
	for range 20 {
		img := pull(t, s, reg.host+"/app:v1")
		var wg sync.WaitGroup
		var removed, used error
		var path string
		wg.Go(func() { removed = s.Remove(t.Context(), img.ID) })
		wg.Go(func() {
			path, used = s.Rootfs(t.Context(), image.RootfsRequest{ContainerID: "c", ImageID: img.ID})
		})
		wg.Wait()
		switch {
		case used == nil && errdefs.IsFailedPrecondition(removed):
			checkFile(t, path+"/bin/app", "content")
		case removed == nil && errdefs.IsNotFound(used):
		default:
			t.Errorf("removal = %v, use = %v, want one of them to fail", removed, used)
		}
		if err := s.Release(t.Context(), "c"); err != nil {
			t.Error(err)
		}
	}
}

// TestRemovalsJoin: concurrent removals of an image all succeed.
func TestRemovalsJoin(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	reg.push(t, "app:v1", simple(t, "x"))
	s := open(t, config(t, reg.host))
	for range 5 {
		img := pull(t, s, reg.host+"/app:v1")
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if err := s.Remove(t.Context(), img.ID); err != nil {
					t.Error(err)
				}
				checkEmpty(t, s)
			})
		}
		wg.Wait()
	}
}
