package layers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/vbatts/tar-split/archive/tar"
	"github.com/vbatts/tar-split/tar/asm"
	tarsplit "github.com/vbatts/tar-split/tar/storage"
	"go.podman.io/storage"
	drivers "go.podman.io/storage/drivers"
	"go.podman.io/storage/pkg/archive"
	"go.podman.io/storage/pkg/chrootarchive"
	"go.podman.io/storage/pkg/tarlog"
)

// staged is a layer on its way to the store. Its directory holds all of it.
type staged struct {
	Layer
	dir string
	// size is that of the tar in bytes; headers has the owners of its files.
	size    int64
	headers headers
	// metadata bounds the file tarSplit.
	metadata bounded
}

func (s *staged) blob() string { return filepath.Join(s.dir, "blob") }

// tarSplit is a file that storage needs to reassemble the tar from the files. It is not kept open: any number of layers
// may wait for their parents.
func (s *staged) tarSplit() string { return filepath.Join(s.dir, "tar-split") }

// files is the directory of the unpacked files. Storage's cleanup of a staged layer removes its parent.
func (s *staged) files() string { return filepath.Join(s.dir, "files") }

// unpack decompresses the blob, once, unpacks the tar and checks its digest.
func (s *staged) unpack(ctx context.Context) error {
	// The mode of the lowest layer's directory if the tar does not have it, as storage makes it.
	const rootMode = 0o555
	if err := os.Mkdir(s.files(), rootMode); err != nil {
		return err
	}
	tarSplit, err := os.Create(s.tarSplit())
	if err != nil {
		return err
	}
	s.metadata.to = tarSplit
	blob, err := os.Open(s.blob())
	if err == nil {
		err = errors.Join(s.unpackFile(ctx, blob), blob.Close(), os.Remove(s.blob()))
	}
	return errors.Join(err, tarSplit.Close())
}

func (s *staged) unpackFile(ctx context.Context, blob io.Reader) error {
	plain, err := archive.DecompressStream(UntilDone{ctx, blob})
	if err != nil {
		return err
	}
	defer plain.Close()
	s.headers = headers{uids: map[uint32]struct{}{}, gids: map[uint32]struct{}{}}
	log, err := tarlog.NewLogger(s.headers.add)
	if err != nil {
		return err
	}
	sum := s.DiffID.Algorithm().Digester()
	counted := &counter{from: io.TeeReader(plain, io.MultiWriter(sum.Hash(), log))}
	err = errors.Join(s.unpackTar(counted), log.Close()) // its goroutine has ended then
	if err != nil {
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
	if ctx.Err() != nil || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return err
	}
	return errors.New(err.Error())
}

// unpackTar writes the files and the tar-split metadata of a tar, and reads it to its end.
func (s *staged) unpackTar(from io.Reader) error {
	const buffer = 64 << 10
	metadata := bufio.NewWriterSize(s.metadata, buffer)
	payload, done, err := asm.NewInputTarStreamWithDone(from, tarsplit.NewJSONPacker(metadata),
		tarsplit.NewDiscardFilePutter())
	if err != nil {
		return err
	}
	err = chrootarchive.UntarUncompressed(pieces{payload}, s.files(), &archive.TarOptions{
		WhiteoutFormat: archive.OverlayWhiteoutFormat,
	})
	if err == nil {
		_, err = io.Copy(io.Discard, payload) // padding, which belongs to the digest
	}
	if err != nil { // the goroutine's error is the same one, or that its reader has gone
		_ = payload.Close()
		<-done
		return err
	}
	return errors.Join(payload.Close(), <-done, metadata.Flush())
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
	_, err = to.ApplyStagedLayer(storage.ApplyStagedLayerOptions{
		ID: s.ID, ParentLayer: s.Parent,
		DiffOutput: &drivers.DriverWithDifferOutput{
			Target: s.files(), Size: s.size, UIDs: sorted(s.headers.uids), GIDs: sorted(s.headers.gids),
			UncompressedDigest: s.DiffID, CompressedDigest: s.Blob.Digest, TarSplit: tarSplit, RootDirMode: &mode,
		},
	})
	if errors.Is(err, storage.ErrDuplicateID) {
		return nil
	}
	return err
}

// inheritRoot gives the layer's directory the owner and mode of that of its parent, unless the tar has them, and
// returns the mode.
func (s *staged) inheritRoot(from storage.Store) (os.FileMode, error) {
	if s.Parent == "" || s.headers.root {
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

// headers has the owners of the files in a layer's tar.
type headers struct {
	uids, gids map[uint32]struct{}
	// root is true if the tar has the root directory.
	root bool
}

func (h *headers) add(entry *tar.Header) {
	if path.Clean("/"+entry.Name) == "/" {
		h.root = true
	}
	if strings.HasPrefix(path.Base(entry.Name), archive.WhiteoutPrefix) {
		return
	}
	h.uids[uint32(entry.Uid)] = struct{}{}
	h.gids[uint32(entry.Gid)] = struct{}{}
}

func sorted(ids map[uint32]struct{}) []uint32 {
	out := make([]uint32, 0, len(ids))
	for id := range ids {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

// pieces reads as much as its caller has room for. Without it each header and file of a tar, which tar-split passes on
// alone, would be a write to the process that unpacks it.
type pieces struct{ from io.Reader }

// Read is that of io.Reader.
func (p pieces) Read(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var more int
		more, err = p.from.Read(b[n:])
		n += more
	}
	return n, err
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
