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

func TestCheckConfig(t *testing.T) {
	at := func(path string) map[string]struct{} { return map[string]struct{}{path: {}} }
	for name, c := range map[string]struct {
		config v1.ImageConfig
		text   string // of the error; "" for none
	}{
		"empty":        {v1.ImageConfig{}, ""},
		"longest user": {v1.ImageConfig{User: strings.Repeat("u", maxUser)}, ""},
		"long user":    {v1.ImageConfig{User: strings.Repeat("u", maxUser+1)}, "user has 257 bytes"},
		"most volumes": {v1.ImageConfig{Volumes: numbered(maxConfigEntries)}, ""},
		"volumes":      {v1.ImageConfig{Volumes: numbered(maxConfigEntries + 1)}, "1001 volumes"},
		"environment":  {v1.ImageConfig{Env: make([]string, maxConfigEntries+1)}, "1001 environment variables"},
		"arguments":    {v1.ImageConfig{Cmd: make([]string, maxConfigEntries+1)}, "1001 arguments"},
		"ports":        {v1.ImageConfig{ExposedPorts: numbered(maxConfigEntries + 1)}, "1001 ports"},
		"deep volume":  {v1.ImageConfig{Volumes: at(strings.Repeat("/d", maxPathDepth+1))}, "65 slashes"},
		"long volume":  {v1.ImageConfig{Volumes: at(strings.Repeat("v", maxPath+1))}, "4097 bytes"},
		"long directory": {
			v1.ImageConfig{WorkingDir: strings.Repeat("w", maxPath+1)}, "working directory has 4097 bytes",
		},
		"large label": {v1.ImageConfig{Labels: map[string]string{"a": strings.Repeat("l", maxConfig)}}, "at most 262144"},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkConfig(&c.config)
			if c.text == "" && err != nil {
				t.Errorf("checkConfig: %v, want no error", err)
			}
			if c.text != "" && (!errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), c.text)) {
				t.Errorf("checkConfig: %v, want an invalid argument with %q", err, c.text)
			}
		})
	}
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

func TestBoundedAnnotations(t *testing.T) {
	most := map[string]string{"a": strings.Repeat("b", maxAnnotations-1)}
	if got := boundedAnnotations(most); len(got) != 1 {
		t.Errorf("boundedAnnotations of %d bytes = %d entries, want 1", maxAnnotations, len(got))
	}
	most["c"] = ""
	if got := boundedAnnotations(most); got != nil {
		t.Errorf("boundedAnnotations of %d bytes = %d entries, want none", maxAnnotations+1, len(got))
	}
}
