package imagetest

import (
	"errors"
	"strings"
	"testing"

	"github.com/podd-project/podd/image"
)

func newFake(t *testing.T) *Fake {
	f := NewFake(t.TempDir())
	f.Add(image.Image{
		ID:   "abcd" + strings.Repeat("12", 30),
		Tags: []string{Ref}, Digests: []string{Repo + "@sha256:" + strings.Repeat("e", 64)},
		Config: Config(),
	}, Files())
	return f
}

func TestFake(t *testing.T) {
	Suite(t, func(t *testing.T) Images { return newFake(t) })
}

func TestFakeFails(t *testing.T) {
	f := newFake(t)
	broken := errors.New("broken")
	var asked []string
	f.FailWith(func(op, container string) error {
		asked = append(asked, op+" "+container)
		return broken
	})
	_, err1 := f.Resolve(t.Context(), Ref)
	_, err2 := f.Rootfs(t.Context(), image.RootfsRequest{ContainerID: "c"})
	_, err3 := f.Volume(t.Context(), image.VolumeRequest{ContainerID: "c"})
	err4 := f.Release(t.Context(), "c")
	for _, err := range []error{err1, err2, err3, err4} {
		if !errors.Is(err, broken) {
			t.Errorf("error %v, want %v", err, broken)
		}
	}
	if got := strings.Join(asked, ","); got != "Resolve ,Rootfs c,Volume c,Release c" {
		t.Errorf("asked %s", got)
	}
	f.FailWith(nil)
	if _, err := f.Resolve(t.Context(), Ref); err != nil {
		t.Error(err)
	}
}

func TestFakePrefixOfSeveral(t *testing.T) {
	f := newFake(t)
	f.Add(image.Image{ID: "abcd" + strings.Repeat("34", 30)}, nil)
	if _, err := f.Resolve(t.Context(), "abcd"); err == nil || !strings.Contains(err.Error(), "several") {
		t.Errorf("error %v, want ambiguous", err)
	}
}
