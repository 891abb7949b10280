package imagetest

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/podd-project/podd/image"
)

func newFake(t *testing.T) *Fake {
	f := NewFake(filepath.Join(t.TempDir(), "rootfs"))
	f.Add(image.Image{
		ID:   "abcd" + strings.Repeat("12", 30),
		Tags: []string{Ref}, Digests: []string{Repo + "@sha256:" + strings.Repeat("e", 64)},
		Config: Config(),
	}, Files())
	return f
}

func TestFake(t *testing.T) {
	Suite(t, func(t *testing.T) Images { return newFake(t).Reopen() })
}

// The engine's tests of failures rely on TestHookFailsBeforeAndAfterTheEffect.
func TestHookFailsBeforeAndAfterTheEffect(t *testing.T) {
	broken := errors.New("broken")
	for _, after := range []bool{false, true} {
		node := newFake(t)
		f := node.Reopen()
		var asked []string
		hook := func(_ context.Context, verb, container string) error {
			asked = append(asked, verb+" "+container)
			return broken
		}
		if after {
			f.After = hook
		} else {
			f.Before = hook
		}
		_, err1 := f.Resolve(t.Context(), Ref)
		_, err2 := f.Rootfs(t.Context(), image.RootfsRequest{ContainerID: "c", ImageID: Ref})
		held, _ := node.ContainersWithMounts(t.Context())
		_, err3 := f.Volume(t.Context(), image.VolumeRequest{ContainerID: "c", ImageID: Ref})
		err4 := f.Release(t.Context(), "c")
		for _, err := range []error{err1, err2, err3, err4} {
			if !errors.Is(err, broken) {
				t.Errorf("after=%v: error %v, want %v", after, err, broken)
			}
		}
		if got, want := strings.Join(asked, ","), "resolve ,rootfs c,volume c,release c"; got != want {
			t.Errorf("after=%v: hook was called with %q, want %q", after, got, want)
		}
		if (len(held) == 1) != after {
			t.Errorf("after=%v: ContainersWithMounts = %q, want one: %v", after, held, after)
		}
		if held, _ := node.ContainersWithMounts(t.Context()); len(held) > 0 {
			t.Errorf("after=%v: ContainersWithMounts after Release = %q, want none", after, held)
		}
	}
}

func TestFakePrefixOfSeveral(t *testing.T) {
	f := newFake(t)
	f.Add(image.Image{ID: "abcd" + strings.Repeat("34", 30)}, nil)
	if _, err := f.Resolve(t.Context(), "abcd"); err == nil || !strings.Contains(err.Error(), "several") {
		t.Errorf("error %v, want ambiguous", err)
	}
}
