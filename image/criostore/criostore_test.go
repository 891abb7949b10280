package criostore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
)

// store makes a directory of CRI-O whose list of images is text.
func store(t *testing.T, text string) (root string) {
	t.Helper()
	root = t.TempDir()
	dir := filepath.Join(root, "overlay-images")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "images.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestImages(t *testing.T) {
	one, two, three := strings.Repeat("1", 64), strings.Repeat("2", 64), strings.Repeat("3", 64)
	d := digest.FromString("manifest")
	root := store(t, `[
		{"id":"`+two+`","digest":"`+d.String()+`","names":["b.test/two:v1","a.test/two:v1"],"layer":"x"},
		{"id":"`+three+`","digest":"`+d.String()+`"},
		{"id":"`+one+`","digest":"`+d.String()+`","names":["a.test/one@`+d.String()+`"]}]`)
	got, err := Images(root)
	if err != nil {
		t.Fatal(err)
	}
	want := []Image{
		{ID: one, Names: []string{"a.test/one@" + d.String()}, Manifest: d},
		{ID: two, Names: []string{"a.test/two:v1", "b.test/two:v1"}, Manifest: d},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Images(), -want +got:\n%s", diff)
	}
}

func TestImagesRefuses(t *testing.T) {
	id, d := strings.Repeat("a", 64), digest.FromString("x").String()
	for text, want := range map[string]string{
		``:  "parse",
		`{`: "parse",
		`[{"id":"../../etc","digest":"` + d + `","names":["x"]}]`:      "is not the id of an image",
		`[{"id":"` + id + `","digest":"sha256:short","names":["x"]}]`:  "digest",
		`[` + strings.Repeat(`{"id":"`+id+`"},`, maxImages) + `{}]`:    "more than 100000 images",
		`[{"id":"` + id + `","digest":"` + d + `","names":"no list"}]`: "parse",
		`[{"id":"` + id + `","digest":"md5:` + id[:32] + `"}]`:         "digest",
		`[{"id":"` + strings.ToUpper(id) + `","digest":"` + d + `"}]`:  "is not the id of an image",
	} {
		if _, err := Images(store(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Images(%.80s) = %v, want an error with %q", text, err, want)
		}
	}
	if _, err := Images(t.TempDir()); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("Images() of an empty directory = %v, want that there is no file", err)
	}
}

func FuzzImages(f *testing.F) {
	f.Add(`[{"id":"` + strings.Repeat("a", 64) + `","digest":"` + digest.FromString("x").String() + `","names":["x"]}]`)
	f.Fuzz(func(t *testing.T, text string) {
		images, err := Images(store(t, text))
		for _, img := range images {
			if err != nil || len(img.ID) != 64 || len(img.Names) == 0 {
				t.Errorf("Images() = %+v, %v", img, err)
			}
		}
	})
}
