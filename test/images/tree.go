package images

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// epoch is the time of every file, so that a layer has the same digest whenever it is built.
var epoch = time.Unix(1_700_000_000, 0).UTC()

// tree is the content of a layer by path, without a leading slash. Parent directories are implied.
type tree map[string]entry

// entry is one file: a tar header of which the name, the size and the time are filled in later, and the content.
type entry struct {
	tar.Header
	data []byte
}

func (t tree) dir(name string, mode int64) {
	t[name] = entry{Header: tar.Header{Typeflag: tar.TypeDir, Mode: mode}}
}

func (t tree) file(name string, mode int64, data []byte) {
	t[name] = entry{Header: tar.Header{Typeflag: tar.TypeReg, Mode: mode}, data: data}
}

func (t tree) text(name, content string) { t.file(name, 0o644, []byte(content)) }

func (t tree) symlink(name, target string) {
	t[name] = entry{Header: tar.Header{Typeflag: tar.TypeSymlink, Linkname: target, Mode: 0o777}}
}

// hardlink names a file of the same tree a second time.
func (t tree) hardlink(name, target string) {
	t[name] = entry{Header: tar.Header{Typeflag: tar.TypeLink, Linkname: target, Mode: 0o755}}
}

// node adds a device or a FIFO: typ is tar.TypeChar, tar.TypeBlock or tar.TypeFifo.
func (t tree) node(name string, typ byte, major, minor int64) {
	t[name] = entry{Header: tar.Header{Typeflag: typ, Mode: 0o666, Devmajor: major, Devminor: minor}}
}

// entries returns the tree as a sorted list, parents before children and hard links after everything else.
func (t tree) entries() []entry {
	full := maps.Clone(t)
	for name := range t {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, ok := full[dir]; !ok {
				full.dir(dir, 0o755)
			}
		}
	}
	var list, links []entry
	for _, name := range slices.Sorted(maps.Keys(full)) {
		e := full[name]
		e.Name = name
		if e.Typeflag == tar.TypeLink {
			links = append(links, e)
			continue
		}
		list = append(list, e)
	}
	return append(list, links...)
}

// layer packs the tree.
func (t tree) layer() (v1.Layer, error) { return pack(t.entries()) }

// pack writes the entries as they stand, in their order: hostile layers (a name twice, a path with ..) use it directly.
func pack(list []entry) (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range list {
		h := e.Header
		h.Size, h.ModTime = int64(len(e.data)), epoch
		if err := w.WriteHeader(&h); err != nil {
			return nil, fmt.Errorf("pack %s: %w", h.Name, err)
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, fmt.Errorf("pack %s: %w", h.Name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(b.Bytes())), nil
	})
}
