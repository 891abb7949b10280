package layers

import (
	"archive/tar"
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// lowerTree is the layer below that of TestAsTar and FuzzAsTar. It has no links: what a whiteout below a link of
// another layer hides is not the same for overlayfs and for a directory to which layers are applied.
var lowerTree = []tar.Header{
	dir("a/"), file("a/a", "lower a/a"), dir("a/b/"), file("a/b/c", "lower a/b/c"), dir("b/"), file("b/a", "lower b/a"),
	file("c", "lower c"),
}

// TestAsTar and FuzzAsTar compare a random layer, as a container sees it above another one, with what GNU tar makes of
// it after its whiteouts have been applied to the layer below, as the OCI image specification says (layer.md).
func TestAsTar(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 0))
		steps := make([]byte, 3*(1+random.IntN(8)))
		for i := range steps {
			steps[i] = byte(random.Uint32())
		}
		asTar(t, steps)
	}
}

// FuzzAsTar is TestAsTar for layers that the fuzzer makes.
func FuzzAsTar(f *testing.F) {
	f.Add([]byte{0, 0, 0})
	f.Fuzz(asTar)
}

func asTar(t *testing.T, steps []byte) {
	entries := randomEntries(steps)
	raw := tarOf(t, entries...)
	s, err := unpackBlob(t, raw, raw)
	if err != nil {
		return // as a hard link to a file of the lower layer
	}
	lower := tarOf(t, lowerTree...)
	below, err := unpackBlob(t, lower, lower)
	if err != nil {
		t.Fatal(err)
	}
	got := mergedListing(t, below.files(), s.files())
	applyWhiteouts(t, below.files(), entries)
	hides := func(h tar.Header) bool { return isWhiteout(h.Name) }
	gnuTar(t, below.files(), slices.DeleteFunc(slices.Clone(entries), hides))
	if want := listing(t, below.files()); !slices.Equal(got, want) {
		t.Errorf("layer:\n%s\nfiles:\n%s\nwant those of GNU tar:\n%s", names(entries), strings.Join(got, "\n"),
			strings.Join(want, "\n"))
	}
}

// randomEntries makes an entry of each three bytes.
func randomEntries(steps []byte) (out []tar.Header) {
	const most = 12
	for ; len(steps) >= 3 && len(out) < most; steps = steps[3:] {
		name, other := randomName(steps[1]), randomName(steps[2])
		switch steps[0] % 8 {
		case 0, 1:
			out = append(out, file(name, string('0'+rune(len(out)))))
		case 2, 3:
			out = append(out, dir(name+"/"))
		case 4:
			out = append(out, link(name, path.Base(other)))
		case 5:
			out = append(out, hard(name, other))
		case 6:
			out = append(out, whiteout(name))
		case 7:
			out = append(out, file(name+"/.wh..wh..opq", ""))
		}
	}
	return out
}

// randomName is a path of at most three parts.
func randomName(from byte) string {
	parts := []string{"a", "b", "c"}
	name := parts[from%3]
	for from /= 3; from > 2 && len(name) < 5; from /= 3 {
		name += "/" + parts[from%3]
	}
	return name
}

func names(entries []tar.Header) string {
	var out []string
	for _, h := range entries {
		out = append(out, string(h.Typeflag)+" "+h.Name+" "+h.Linkname)
	}
	return strings.Join(out, "\n")
}

// mergedListing describes what a container sees.
func mergedListing(t *testing.T, lower, upper string) []string {
	t.Helper()
	merged := t.TempDir()
	if err := unix.Mount("overlay", merged, "overlay", 0, "lowerdir="+upper+":"+lower); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(merged, 0); err != nil {
			t.Error(err)
		}
	}()
	return listing(t, merged)
}

// applyWhiteouts removes from the lower layer what a layer hides: also a file where this layer has files below.
func applyWhiteouts(t *testing.T, lower string, entries []tar.Header) {
	t.Helper()
	for _, h := range entries {
		for dir := path.Dir(path.Clean(h.Name)); dir != "."; dir = path.Dir(dir) {
			if info, err := os.Lstat(filepath.Join(lower, dir)); err == nil && !info.IsDir() {
				_ = os.Remove(filepath.Join(lower, dir))
			}
		}
		if !isWhiteout(h.Name) {
			continue
		}
		hidden := filepath.Join(lower, filepath.Dir(h.Name), strings.TrimPrefix(filepath.Base(h.Name), ".wh."))
		targets := []string{hidden}
		if filepath.Base(h.Name) == ".wh..wh..opq" {
			targets, _ = filepath.Glob(filepath.Dir(hidden) + "/*")
		}
		for _, target := range targets {
			if err := os.RemoveAll(target); err != nil && !errors.Is(err, unix.ENOTDIR) {
				t.Fatal(err)
			}
		}
	}
	for _, h := range entries {
		if isWhiteout(h.Name) { // the directory of a whiteout is there, as that of a file
			if err := os.MkdirAll(filepath.Join(lower, filepath.Dir(h.Name)), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// gnuTar extracts entries with GNU tar, one after the other: it does not replace a directory by a file.
func gnuTar(t *testing.T, dir string, entries []tar.Header) {
	t.Helper()
	for _, h := range entries {
		place := filepath.Join(dir, h.Name)
		if info, err := os.Lstat(place); err == nil && (!info.IsDir() || h.Typeflag != tar.TypeDir) && !isLinkTo(dir, h) {
			if err := os.RemoveAll(place); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command("tar", "-x", "-C", dir)
		cmd.Stdin = bytes.NewReader(tarOf(t, h))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("tar: %v: %s\n%s", err, out, names(entries))
		}
	}
}

// isLinkTo reports whether an entry is a hard link that exists.
func isLinkTo(dir string, h tar.Header) bool {
	if h.Typeflag != tar.TypeLink {
		return false
	}
	a, errA := os.Lstat(filepath.Join(dir, h.Name))
	b, errB := os.Lstat(filepath.Join(dir, h.Linkname))
	return errA == nil && errB == nil && os.SameFile(a, b)
}
