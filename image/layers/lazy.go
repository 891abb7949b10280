package layers

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"

	"github.com/opencontainers/go-digest"
	"go.podman.io/storage"
	drivers "go.podman.io/storage/drivers"
	"golang.org/x/sys/unix"
)

// Lazy is a layer whose files are in an additional layer store: containers-storage.conf(5), additionallayerstores. It
// is a FUSE server that fetches the files that are read, and compares them with the layer's table of contents.
type Lazy struct {
	// Reference names the image by the digest of its manifest, TOC is the digest of the table of contents.
	Reference string        `json:"reference"`
	TOC       digest.Digest `json:"toc"`
	// Mode (as in Stat_t), UID and GID are those of the layer's root directory.
	Mode uint32 `json:"mode"`
	UID  int    `json:"uid"`
	GID  int    `json:"gid"`
}

// Path returns the path of the layer's directory below the store's mount point: "ref" in containers-storage.conf(5).
func (l Lazy) Path() string {
	return path.Join(base64.StdEncoding.EncodeToString([]byte(l.Reference)), l.TOC.String())
}

// LazyID returns the id that containers/image gives to a layer known only by the digest of its table of contents, on a
// parent, "" for none. It differs from ChainID: the digest of the tar is not verified, so an image that names only that
// must not get this layer.
func LazyID(parent string, toc digest.Digest) string {
	return digest.Canonical.FromString(parent + "+@TOC=" + toc.Encoded()).Encoded()
}

// maxLazyRecord bounds the record of a lazy layer in bytes. A reference has 255 bytes and a digest at most.
const maxLazyRecord = 4 << 10

// ReadLazy returns the record in a layer's directory in storage of a layer in an additional layer store, nil if the
// layer is an ordinary one. Instead of the directory such a layer has a file, with the mode and owner of the directory:
// who does not know of it cannot mount it.
func ReadLazy(dir string) (*Lazy, error) {
	info, err := os.Lstat(dir)
	if err != nil || !info.Mode().IsRegular() {
		return nil, err
	}
	file, err := os.OpenFile(dir, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	raw, err := io.ReadAll(io.LimitReader(file, maxLazyRecord))
	if err != nil {
		return nil, err
	}
	l := &Lazy{}
	if err := json.Unmarshal(raw, l); err != nil {
		return nil, fmt.Errorf("read %s: %w", dir, err)
	}
	if err := l.TOC.Validate(); err != nil {
		return nil, fmt.Errorf("read %s: %w", dir, err)
	}
	return l, nil
}

// diffIDFlag is the name under which containers/image wants the digest of a lazy layer's tar, unverified.
const diffIDFlag = "expected-layer-diffid"

// ExpectedDiffID returns the digest that a lazy layer's tar had in the config of the image with which it was stored.
func ExpectedDiffID(l *storage.Layer) digest.Digest {
	d, _ := l.Flags[diffIDFlag].(string)
	return digest.Digest(d)
}

// noTarSplit is in place of the metadata from which storage reassembles a layer's tar, which it then fails to do.
const noTarSplit = "the files are in an additional layer store\n"

// WithLazy returns a store that finds layers by a table of contents among those with these ids only: containers/image
// takes such a layer into any image, and cannot copy the content of a lazy layer to another parent.
func WithLazy(store storage.Store, ids []string) storage.Store {
	return &planned{Store: store, ids: ids}
}

type planned struct {
	storage.Store
	ids []string
}

// LayersByTOCDigest is that of storage.Store for the layers that are planned.
func (p *planned) LayersByTOCDigest(d digest.Digest) ([]storage.Layer, error) {
	if len(p.ids) == 0 {
		return nil, storage.ErrLayerUnknown
	}
	found, err := p.Store.LayersByTOCDigest(d)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(l storage.Layer) bool { return !slices.Contains(p.ids, l.ID) })
	if len(found) == 0 {
		return nil, storage.ErrLayerUnknown
	}
	return found, nil
}

// addLazy stores a layer of an additional layer store when its parent is stored.
func (a *Adder) addLazy(ctx context.Context, s *staged, parent <-chan struct{}) error {
	if err := s.writeLazy(); err != nil {
		return err
	}
	select {
	case <-parent:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := s.storeLazy(a.Store); err != nil {
		return fmt.Errorf("storing layer %s: %w", s.ID, err)
	}
	return nil
}

// writeLazy writes the file that ReadLazy reads.
func (s *staged) writeLazy() error {
	if err := s.makeDir(); err != nil {
		return err
	}
	raw, err := json.Marshal(s.Lazy)
	if err != nil {
		return err
	}
	const bits = unix.S_ISUID | unix.S_ISGID | unix.S_ISVTX | 0o777
	return errors.Join(
		os.WriteFile(s.tarSplit(), []byte(noTarSplit), 0o600), os.WriteFile(s.files(), raw, 0o600),
		os.Chown(s.files(), s.Lazy.UID, s.Lazy.GID), unix.Chmod(s.files(), s.Lazy.Mode&bits),
	)
}

func (s *staged) storeLazy(to storage.Store) error {
	info, err := os.Stat(s.files())
	if err != nil {
		return err
	}
	tarSplit, err := os.Open(s.tarSplit())
	if err != nil {
		return err
	}
	defer tarSplit.Close() // read only; storage has closed it unless it has failed early
	mode := info.Mode()
	_, err = to.ApplyStagedLayer(storage.ApplyStagedLayerOptions{
		ID: s.ID, ParentLayer: s.Parent,
		DiffOutput: &drivers.DriverWithDifferOutput{
			Target: s.files(), Size: s.Blob.Size, TOCDigest: s.Lazy.TOC, TarSplit: tarSplit, RootDirMode: &mode,
		},
		DiffOptions: &drivers.ApplyDiffWithDifferOpts{Flags: map[string]any{diffIDFlag: s.DiffID.String()}},
	})
	if errors.Is(err, storage.ErrDuplicateID) {
		return nil
	}
	return err
}

// Wanted is a layer of a manifest that is looked up.
type Wanted struct {
	Lazy
	// Blob and Size are those in the manifest, DiffID is that in the config.
	Blob   digest.Digest
	Size   int64
	DiffID digest.Digest
}
