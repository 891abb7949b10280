package layers_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/types"

	"github.com/podd-project/podd/image/layers"
)

// TestChain: the ids are those of containers/image, and an image of which not all is known has no chain.
func TestChain(t *testing.T) {
	a, b := digest.FromString("a"), digest.FromString("b")
	blob := func(of digest.Digest) types.BlobInfo { return types.BlobInfo{Digest: of, Size: 1} }
	sha512 := digest.SHA512.FromString("a")
	for name, c := range map[string]struct {
		blobs   []types.BlobInfo
		diffIDs []digest.Digest
		want    []string
	}{
		"two layers": {[]types.BlobInfo{blob(b), blob(a)}, []digest.Digest{a, b},
			[]string{a.Encoded(), digest.FromString(a.Encoded() + "+" + b.Encoded()).Encoded()}},
		"none":              {nil, nil, nil},
		"a digest missing":  {[]types.BlobInfo{blob(a), blob(b)}, []digest.Digest{a}, nil},
		"an empty digest":   {[]types.BlobInfo{blob(a)}, []digest.Digest{""}, nil},
		"a path for digest": {[]types.BlobInfo{blob(a)}, []digest.Digest{"sha256:../../../etc"}, nil},
		"another algorithm": {[]types.BlobInfo{blob(a)}, []digest.Digest{sha512}, nil},
		"a bad blob":        {[]types.BlobInfo{blob("x")}, []digest.Digest{a}, nil},
		"unknown size":      {[]types.BlobInfo{{Digest: a, Size: -1}}, []digest.Digest{a}, nil},
		"another place": {[]types.BlobInfo{{Digest: a, Size: 1, URLs: []string{"http://elsewhere.test"}}},
			[]digest.Digest{a}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			chain, ok := layers.Chain(c.blobs, c.diffIDs)
			var got []string
			parent := ""
			for _, l := range chain {
				if l.Parent != parent {
					t.Errorf("parent of %s = %q, want %q", l.ID, l.Parent, parent)
				}
				parent = l.ID
				got = append(got, l.ID)
			}
			if want := c.want != nil || len(c.blobs) == 0; ok != want || !slices.Equal(got, c.want) {
				t.Errorf("Chain() = %s, %t, want %s, %t", strings.Join(got, " "), ok, strings.Join(c.want, " "), want)
			}
		})
	}
}
