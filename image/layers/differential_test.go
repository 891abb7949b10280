package layers

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cyphar/filepath-securejoin"
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
	applyLayer(t, below.files(), entries)
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

// applyLayer changes a lower layer as the entries of another one say, in their order. GNU tar extracts each alone: it
// does not replace a directory by a file. A whiteout removes what the entries have not made.
func applyLayer(t *testing.T, root string, entries []tar.Header) {
	t.Helper()
	for _, h := range entries {
		parent := makeParents(t, root, path.Dir(path.Clean(h.Name)))
		base := path.Base(h.Name)
		place := filepath.Join(parent, base)
		if base == ".wh..wh..opq" {
			children, _ := filepath.Glob(parent + "/*")
			for _, child := range children {
				removeLower(t, child)
			}
			continue
		}
		if isWhiteout(base) {
			removeLower(t, filepath.Join(parent, strings.TrimPrefix(base, ".wh.")))
			continue
		}
		info, err := os.Lstat(place)
		if err == nil && (!info.IsDir() || h.Typeflag != tar.TypeDir) && !isLinkTo(root, h) {
			if err := os.RemoveAll(place); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command("tar", "-x", "-C", root)
		cmd.Stdin = bytes.NewReader(tarOf(t, h))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("tar: %v: %s\n%s", err, out, names(entries))
		}
		markUpper(t, place)
	}
}

// makeParents makes the directory of an entry, also in the place of files of the lower layer, and returns it without
// links.
func makeParents(t *testing.T, root, name string) string {
	t.Helper()
	resolved, err := securejoin.SecureJoin(root, name)
	if err != nil {
		t.Fatal(err)
	}
	rest, dir := strings.TrimPrefix(resolved, root), root
	for part := range strings.SplitSeq(strings.Trim(rest, "/"), "/") {
		dir = filepath.Join(dir, part)
		if info, err := os.Lstat(dir); err == nil && !info.IsDir() {
			removeLower(t, dir)
		}
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			t.Fatal(err)
		}
		markUpper(t, dir)
	}
	return resolved
}

// upperMark is the attribute of what the entries of the upper layer have made.
const upperMark = "trusted.podd-test"

func markUpper(t *testing.T, path string) {
	t.Helper()
	if err := unix.Lsetxattr(path, upperMark, nil, 0); err != nil {
		t.Fatal(err)
	}
}

// removeLower removes what the entries have not made.
func removeLower(t *testing.T, path string) {
	t.Helper()
	if _, err := unix.Lgetxattr(path, upperMark, nil); err != nil {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		return
	}
	if info, err := os.Lstat(path); err != nil || !info.IsDir() {
		return
	}
	children, _ := filepath.Glob(path + "/*")
	for _, child := range children {
		removeLower(t, child)
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
