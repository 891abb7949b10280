package layers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"go.podman.io/image/v5/types"
	"go.podman.io/storage"
	drivers "go.podman.io/storage/drivers"
)

// staged is a layer on its way to the store. Its directory holds all of it.
type staged struct {
	Layer
	dir string
	// size is that of the tar in bytes; uids and gids are the owners of its files. hasRoot is set if it has the root
	// directory.
	size       int64
	uids, gids map[uint32]struct{}
	hasRoot    bool
	// metadata bounds the file tarSplit.
	metadata bounded
	// count counts files and bytes, and fails at their limits.
	count func(files, bytes int64) error
	// decrypt is set if the file blob is encrypted.
	decrypt func(types.BlobInfo, io.Reader) (io.Reader, error)
}

// makeDir makes the directory, without what an earlier try has left.
func (s *staged) makeDir() error { return errors.Join(os.RemoveAll(s.dir), os.Mkdir(s.dir, 0o700)) }

func (s *staged) blob() string { return filepath.Join(s.dir, "blob") }

// tarSplit is a file that storage needs to reassemble the tar from the files. It is not kept open: any number of layers
// may wait for their parents.
func (s *staged) tarSplit() string { return filepath.Join(s.dir, "tar-split") }

// replaced is a directory for contents of files that a later entry of the tar has replaced.
func (s *staged) replaced() string { return filepath.Join(s.dir, "replaced") }

// files is the directory of the unpacked files. Storage's cleanup of a staged layer removes its parent.
func (s *staged) files() string { return filepath.Join(s.dir, "files") }

// unpack decrypts and decompresses the blob, once, unpacks the tar and checks its digest.
func (s *staged) unpack(ctx context.Context) error {
	// The mode of the lowest layer's directory if the tar does not have it, as storage makes it.
	const rootMode = 0o555
	if err := os.Mkdir(s.files(), rootMode); err != nil {
		return err
	}
	blob, err := os.Open(s.blob())
	if err != nil {
		return err
	}
	return errors.Join(s.unpackFile(ctx, blob), blob.Close(), os.Remove(s.blob()))
}

func (s *staged) unpackFile(ctx context.Context, blob io.Reader) (err error) {
	blob = UntilDone{ctx, blob}
	if s.decrypt != nil {
		if blob, err = s.decrypt(s.Blob, blob); err != nil {
			return err
		}
		// The HMAC is verified at the end, which the tar need not have reached.
		defer func() {
			if _, end := io.Copy(io.Discard, blob); end != nil && ctx.Err() == nil {
				err = fmt.Errorf("the encrypted layer is not intact: %.100q", end.Error())
			}
		}()
	}
	plain, err := Decompress(blob)
	if err != nil {
		return err
	}
	defer plain.Close()
	sum := s.DiffID.Algorithm().Digester()
	counted := &counter{from: io.TeeReader(plain, sum.Hash())}
	if err := s.unpackTar(counted); err != nil {
		return err
	}
	s.size = counted.n
	if got := sum.Digest(); got != s.DiffID {
		return fmt.Errorf("layer %s does not match config's DiffID %q", got, s.DiffID)
	}
	return nil
}

// contentError returns an error of unpacking a blob, which has its digest, without its type, except that of a full
// disk or of the context's end: a tar that ends too early has the error of a lost connection.
func contentError(ctx context.Context, err error) error {
	if ctx.Err() != nil || IsFull(err) {
		return err
	}
	return errors.New(err.Error())
}

// store adds the layer to the store. Its parent must be there. A layer that another pull has stored in the meantime is
// not an error.
func (s *staged) store(to storage.Store) error {
	mode, err := s.inheritRoot(to)
	if err != nil {
		return err
	}
	tarSplit, err := os.Open(s.tarSplit())
	if err != nil {
		return err
	}
	defer tarSplit.Close() // read only; storage has closed it unless it has failed early
	compressed := s.Blob.Digest
	if IsEncrypted(s.Blob.MediaType) {
		compressed = "" // see WithDecrypted
	}
	_, err = to.ApplyStagedLayer(storage.ApplyStagedLayerOptions{
		ID: s.ID, ParentLayer: s.Parent,
		DiffOutput: &drivers.DriverWithDifferOutput{
			Target: s.files(), Size: s.size, UIDs: sorted(s.uids), GIDs: sorted(s.gids),
			UncompressedDigest: s.DiffID, CompressedDigest: compressed, TarSplit: tarSplit, RootDirMode: &mode,
		},
	})
	if errors.Is(err, storage.ErrDuplicateID) {
		return nil
	}
	if errors.Is(err, syscall.EXDEV) {
		return fmt.Errorf("%w: all of the image store must be on one filesystem", err)
	}
	return err
}

// inheritRoot gives the layer's directory the owner and mode of that of its parent, unless the tar has them, and
// returns the mode.
func (s *staged) inheritRoot(from storage.Store) (os.FileMode, error) {
	if s.Parent == "" || s.hasRoot {
		info, err := os.Stat(s.files())
		if err != nil {
			return 0, err
		}
		return info.Mode(), nil
	}
	parent, err := from.DifferTarget(s.Parent)
	if err != nil {
		return 0, err
	}
	info, err := os.Stat(parent)
	if err != nil {
		return 0, err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, errors.New("the directory of the parent has no owner")
	}
	mode := info.Mode().Perm() // as the library does: without the set-group-ID bit
	return mode, errors.Join(os.Chown(s.files(), int(owner.Uid), int(owner.Gid)), os.Chmod(s.files(), mode))
}

func sorted(ids map[uint32]struct{}) []uint32 {
	out := make([]uint32, 0, len(ids))
	for id := range ids {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

// counter counts the bytes of a reader.
type counter struct {
	from io.Reader
	n    int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.n += int64(n)
	return n, err
}

// UntilDone reads until its context ends.
type UntilDone struct {
	Context context.Context
	From    io.Reader
}

// Read is that of io.Reader; its error is the cause of the context's end.
func (u UntilDone) Read(p []byte) (int, error) {
	if u.Context.Err() != nil {
		return 0, context.Cause(u.Context)
	}
	return u.From.Read(p)
}
