package image

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// numbered returns n different volumes.
func numbered(n int) map[string]struct{} {
	out := make(map[string]struct{}, n)
	for i := range n {
		out[fmt.Sprintf("/v%d", i)] = struct{}{}
	}
	return out
}

// TestStoredOverLimits: images that another program has stored, without limits, cost little memory. They can be listed
// and removed, and no container can be made of them.
func TestStoredOverLimits(t *testing.T) {
	s := testStore(t, nil)
	const count, volumes = 5, 60_000
	before := heap()
	var ids []string
	for i := range count {
		config, err := json.Marshal(v1.Image{Config: v1.ImageConfig{User: fmt.Sprint(i), Volumes: numbered(volumes)}})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, plant(t, s, string(config), fmt.Sprintf("h.test/large:%d", i)))
	}
	s.refreshIfChanged()
	const most = 4 << 20
	if cost := heap() - before; cost > most {
		t.Errorf("%d images of %d volumes take %d bytes of memory, want at most %d", count, volumes, cost, most)
	}
	list, err := s.List(t.Context())
	if err != nil || len(list) != count {
		t.Fatalf("List = %d images, %v, want %d", len(list), err, count)
	}
	_, rootfsErr := s.Rootfs(t.Context(), RootfsRequest{ContainerID: "c", ImageID: ids[0]})
	_, volumeErr := s.Volume(t.Context(), VolumeRequest{ContainerID: "c", ImageID: ids[0]})
	for _, err := range []error{rootfsErr, volumeErr} {
		if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "60000 volumes") {
			t.Errorf("mount of an image over the limits: %v, want an invalid argument that names the number", err)
		}
	}
	if err := s.Remove(t.Context(), ids[0]); err != nil {
		t.Errorf("remove an image over the limits: %v", err)
	}
}

// heap returns the bytes of live objects.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
