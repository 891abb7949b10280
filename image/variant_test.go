package image_test

import (
	"maps"
	"slices"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/podd-project/podd/image"
)

const flavorKey = "com.example.flavor"

// flavors is a list with a plain image, and others for the same platform that differ only by an annotation.
func flavors(plain, cuda, foreign v1.Image) v1.ImageIndex {
	list := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, one := range []struct {
		img    v1.Image
		arch   string
		flavor map[string]string
	}{
		{foreign, "riscv64", map[string]string{flavorKey: "cuda"}},
		{plain, "amd64", nil},
		{cuda, "amd64", map[string]string{flavorKey: "cuda", "other": "x"}},
		{foreign, "riscv64", map[string]string{flavorKey: "rocm"}},
	} {
		list = mutate.AppendManifests(list, mutate.IndexAddendum{Add: one.img, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: one.arch}, Annotations: one.flavor}})
	}
	return list
}

func TestPullOfVariant(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	plain, cuda := simple(t, "plain"), simple(t, "cuda")
	digest := reg.push(t, "ml:v1", flavors(plain, cuda, craft(t, arch("riscv64"), tree{"x": "foreign"})))
	reg.push(t, "single:v1", plain)
	cfg := config(t, reg.host)
	cfg.VariantAnnotations = []string{"com.example.unused", flavorKey}
	s := open(t, cfg)
	for _, tt := range []struct {
		name, ref string
		asked     map[string]string
		want      v1.Image
	}{
		{"nothing asked", "ml:v1", nil, plain},
		{"the annotated one", "ml:v1", map[string]string{flavorKey: "cuda", "any": "thing"}, cuda},
		{"a pod's other annotations choose nothing", "ml:v1", map[string]string{"other": "x"}, plain},
		{"an unknown flavor", "ml:v1", map[string]string{flavorKey: "none"}, plain},
		{"a flavor of another platform", "ml:v1", map[string]string{flavorKey: "rocm"}, plain},
		{"by digest of the list", "ml@" + digest, map[string]string{flavorKey: "cuda"}, cuda},
		{"no list", "single:v1", map[string]string{flavorKey: "cuda"}, plain},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/" + tt.ref, Annotations: tt.asked})
			if err != nil {
				t.Fatal(err)
			}
			if got.ID != imageID(t, tt.want) {
				t.Errorf("image %s, want %s", got.ID, imageID(t, tt.want))
			}
			if tt.ref != "single:v1" && !slices.Contains(got.Digests, reg.host+"/ml@"+digest) {
				t.Errorf("digests = %q, want the list's %s among them", got.Digests, digest)
			}
			found, err := s.Resolve(t.Context(), reg.host+"/"+tt.ref)
			if err != nil || found.ID != got.ID {
				t.Errorf("Resolve by name = %v, %v, want %s", found, err, got.ID)
			}
		})
	}
	cuda1, err := s.Resolve(t.Context(), imageID(t, cuda))
	if err != nil || cuda1.Size == 0 {
		t.Errorf("Resolve of the variant without names = %v, %v, want an image with a size", cuda1, err)
	}
}

// TestVariantsAreNotJoined: pulls of two variants are two pulls; pulls that differ only in other annotations are one.
func TestVariantsAreNotJoined(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	plain, cuda := simple(t, "plain"), simple(t, "cuda")
	reg.push(t, "ml:v1", flavors(plain, cuda, craft(t, arch("riscv64"), tree{"x": "foreign"})))
	cfg := config(t, reg.host)
	cfg.VariantAnnotations = []string{flavorKey}
	s := open(t, cfg)
	_, release := hang(t, reg, "/v2/ml/manifests/v1")
	asked := []map[string]string{{"pod": "a"}, {"pod": "b"}, {"pod": "a", flavorKey: "cuda"}}
	ids := make(chan string, len(asked))
	for _, a := range asked {
		go func() {
			img, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/ml:v1", Annotations: a})
			if err != nil {
				t.Error(err)
				ids <- ""
				return
			}
			ids <- img.ID
		}()
	}
	eventually(t, "two pulls, one with two callers", func() bool {
		callers := map[int]int{}
		for _, p := range pullsOf(s) {
			callers[p.Callers]++
		}
		return maps.Equal(callers, map[int]int{1: 1, 2: 1})
	})
	release()
	count := map[string]int{}
	for range asked {
		count[<-ids]++
	}
	if want := map[string]int{imageID(t, plain): 2, imageID(t, cuda): 1}; !maps.Equal(count, want) {
		t.Errorf("images %v, want %v", count, want)
	}
}
