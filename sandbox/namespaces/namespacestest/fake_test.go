package namespacestest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/podd-project/podd/sandbox/namespaces"
)

func TestFake(t *testing.T) {
	Suite(t, func(t *testing.T) Namespaces {
		f := NewFake()
		t.Cleanup(func() {
			if left := f.Mounted(); len(left) > 0 {
				t.Errorf("Mounted at the end = %q, want none", left)
			}
		})
		return f.Reopen()
	})
}

// The engine's tests of failures rely on TestHookFailsBeforeAndAfterTheEffect.
func TestHookFailsBeforeAndAfterTheEffect(t *testing.T) {
	boom := errors.New("boom")
	path := filepath.Join(t.TempDir(), "net")
	for _, after := range []bool{false, true} {
		node := NewFake()
		f := node.Reopen()
		var verbs []string
		hook := func(_ context.Context, verb, _ string) error { verbs = append(verbs, verb); return boom }
		if after {
			f.After = hook
		} else {
			f.Before = hook
		}
		pin := f.Pin(t.Context(), namespaces.Request{Net: path})
		if got := node.Mounted(); (len(got) == 1) != after {
			t.Errorf("after=%v: Mounted = %q, want one: %v", after, got, after)
		}
		sysctl, unpin := f.Sysctl(t.Context(), path, nil), f.Unpin(t.Context(), path)
		for verb, err := range map[string]error{"Pin": pin, "Sysctl": sysctl, "Unpin": unpin} {
			if !errors.Is(err, boom) {
				t.Errorf("after=%v: %s = %v, want %v", after, verb, err, boom)
			}
		}
		if got := node.Mounted(); len(got) > 0 {
			t.Errorf("after=%v: Mounted after Unpin = %q, want none", after, got)
		}
		if want := []string{"pin", "sysctl", "unpin"}; !slices.Equal(verbs, want) {
			t.Errorf("after=%v: hook was called for %q, want %q", after, verbs, want)
		}
	}
}

func TestFileDeletedWithoutUnpinIsALeak(t *testing.T) {
	f, path := NewFake(), filepath.Join(t.TempDir(), "net")
	must(t, "Pin", f.Pin(t.Context(), namespaces.Request{Net: path}))
	must(t, "remove", os.Remove(path))
	if got := f.Mounted(); !slices.Equal(got, []string{path}) {
		t.Errorf("Mounted = %q, want %q", got, path)
	}
}
