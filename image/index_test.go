package image

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/image/registry"
	"github.com/podd-project/podd/image/worker"
)

func testEntry(id string, age time.Duration, names ...string) *entry {
	e := &entry{Image: &Image{ID: id, Created: time.Unix(1e9, 0).Add(-age)}}
	e.Tags, e.Digests = splitNames(names)
	return e
}

func TestIndexByID(t *testing.T) {
	one, two, three := "aaaa"+zeros[4:], "aaab"+zeros[4:], "b"+zeros[1:]
	ix := newIndex([]*entry{testEntry(one, 0), testEntry(two, 0), testEntry(three, 0)})
	for hex, want := range map[string]string{
		one: one, two: two, "aaaa": one, "aaab": two, "b000": three, "b": three, zeros: "", "c": "", three[:63]: three,
	} {
		e, err := ix.id(hex)
		if err != nil || e == nil && want != "" || e != nil && e.ID != want {
			t.Errorf("%s: %v %v, want %s", hex, e, err, want)
		}
	}
	for _, hex := range []string{"a", "aa", "aaa"} {
		if _, err := ix.id(hex); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v, want ambiguous", hex, err)
		}
	}
}

func TestIndexOrder(t *testing.T) {
	ix := newIndex([]*entry{testEntry("c", 0), testEntry("b", time.Hour), testEntry("a", 0)})
	var got []string
	for _, img := range ix.images {
		got = append(got, img.ID)
	}
	if !slices.Equal(got, []string{"b", "a", "c"}) {
		t.Errorf("order %q, want the oldest first", got)
	}
}

// TestIndexPrefersNames: a digest that was pulled takes precedence over the same digest inside of another image's list.
func TestIndexPrefersNames(t *testing.T) {
	asked := testEntry("asked", time.Hour, "h.test/x@sha256:1")
	other := testEntry("other", 0, "h.test/x:v1")
	other.digests = []string{"sha256:1", "sha256:2"}
	for _, entries := range [][]*entry{{asked, other}, {other, asked}} {
		ix := newIndex(entries)
		for name, want := range map[string]*entry{"h.test/x@sha256:1": asked, "h.test/x@sha256:2": other,
			"h.test/x:v1": other} {
			if ix.byName[name] != want {
				t.Errorf("byName[%q] = %v, want %v", name, ix.byName[name], want)
			}
		}
	}
}

func TestRepository(t *testing.T) {
	for in, want := range map[string]string{
		"h.test/x:v1": "h.test/x", "h:5/x": "h:5/x", "h:5/x:v": "h:5/x", "h:5/x@sha256:0": "h:5/x",
		"h.test/a/b:v": "h.test/a/b",
	} {
		if got := registry.Repository(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// thousand returns an index of 1,000 images with two tags each.
func thousand() *index {
	var entries []*entry
	for i := range 1000 {
		id := fmt.Sprintf("%064x", uint64(i)*0x9e3779b97f4a7c15)
		name := fmt.Sprintf("registry.test/team/app-%d", i)
		e := testEntry(id, time.Duration(i), name+":v1", name+":v2", name+"@sha256:"+id)
		e.digests = []string{"sha256:" + id}
		entries = append(entries, e)
	}
	return newIndex(entries)
}

func BenchmarkResolve(b *testing.B) {
	s := storeWith("")
	ix := thousand()
	s.index.Store(ix)
	for name, ref := range map[string]string{
		"tag": "registry.test/team/app-500:v1", "digest": ix.byID[ix.ids[500]].Digests[0], "id": ix.ids[500],
		"prefix": ix.ids[500][:60], "missing": "registry.test/none:v1",
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Resolve(b.Context(), ref); (err != nil) != (name == "missing") {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkList1000(b *testing.B) {
	s := storeWith("")
	s.index.Store(thousand())
	b.ReportAllocs()
	for b.Loop() {
		if list, err := s.List(b.Context()); err != nil || len(list) != 1000 {
			b.Fatal(len(list), err)
		}
	}
}

func BenchmarkNewIndex1000(b *testing.B) {
	entries := make([]*entry, 0, 1000)
	for _, e := range thousand().byID {
		entries = append(entries, e)
	}
	for b.Loop() {
		newIndex(entries)
	}
}

// TestFindIDOrName: few hex digits are a name if there is one, many are an id if there is one.
func TestFindIDOrName(t *testing.T) {
	idOf := func(prefix string) string { return prefix + zeros[len(prefix):] }
	few, many := testEntry(idOf("cafe1"), 0), testEntry(idOf("feedfeedfeed1"), 0)
	named := testEntry(idOf("1"), 0, "docker.io/library/cafe:latest", "docker.io/library/feedfeedfeed:latest",
		"docker.io/library/deadbeefdeadbeef:latest")
	s := storeWith(t.TempDir())
	s.index.Store(newIndex([]*entry{few, many, named}))
	for ref, want := range map[string]*entry{
		"cafe": named, "cafe1": few, "sha256:cafe1": few, "feedfeedfeed": many, "feedfeedfeed:latest": named,
		"deadbeefdeadbeef": named,
	} {
		if got, err := s.find(ref); err != nil || got != want {
			t.Errorf("%s: %v %v, want %s", ref, got, err, want.ID)
		}
	}
}

// storeWith returns a store that has only a directory for locks.
func storeWith(runRoot string) *Store {
	s := &Store{layout: worker.Layout{RunRoot: runRoot}}
	s.settings.Store(&Config{})
	return s
}

const zeros = "0000000000000000000000000000000000000000000000000000000000000000"
