package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/sirupsen/logrus"
	"go.podman.io/image/v5/types"
	"go.podman.io/storage"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/image/layers"
	"github.com/podd-project/podd/image/worker"
)

// retiredPrefix is the prefix of a layer's replaced directories, next to its current one: containers may have them
// mounted.
const retiredPrefix = "damaged-"

// repair replaces the corrupt layers of a copied image by those that refetch has left in dir.
func (s *Store) repair(ctx context.Context, img *storage.Image, dir string) error {
	corrupt := s.integrity.corruptLayers()
	if len(corrupt) == 0 {
		return nil
	}
	chain, err := worker.ChainOf(s.storage, img)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(chain, func(id string) bool { _, ok := corrupt[id]; return ok }) {
		return nil
	}
	blobs, err := worker.LayersOfChain(s.storage, img.ID, chain)
	if err != nil {
		return err
	}
	select {
	case s.repairing <- struct{}{}: // another image may have the same layer
		defer func() { <-s.repairing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	corrupt = s.integrity.corruptLayers()
	for i, id := range chain {
		if _, ok := corrupt[id]; !ok {
			continue
		}
		if err := s.repairLayer(ctx, id, blobs[i].BlobInfo, filepath.Join(dir, worker.RefetchedPrefix+id)); err != nil {
			return fmt.Errorf("repair corrupt layer %s: %w", id, err)
		}
	}
	return nil
}

func (s *Store) repairLayer(ctx context.Context, id string, blob types.BlobInfo, path string) error {
	// Another image may have given this layer its id, by the same table of contents in another blob.
	if lazy, err := layers.ReadLazy(s.layout.LayerFiles(id)); err == nil && lazy != nil {
		return fmt.Errorf("its files were in an additional layer store: remove the images with it, then pull or load "+
			"again: %w", errdefs.ErrFailedPrecondition)
	}
	file, err := openRefetched(path, blob.Digest)
	if err != nil {
		return err
	}
	defer file.Close()
	s.integrity.bumpVersion(id)
	defer s.removeRetired(id)
	if err := s.replaceLayerFiles(id, file); err != nil {
		return err
	}
	layer, err := s.storage.Layer(id)
	if err != nil {
		return err
	}
	unverifiable := s.verifyFiles(ctx, layer)
	var corrupt corruptError
	if unverifiable != nil && !errors.As(unverifiable, &corrupt) {
		return unverifiable
	}
	log := s.log.WithFields(logrus.Fields{"layer": id, "blob": blob.Digest})
	if unverifiable != nil {
		log.WithError(unverifiable).Warn("failed to verify a layer that was fetched again, using it unverified")
	} else {
		log.Info("fetched a corrupt layer again")
	}
	return s.integrity.markRepaired(id, unverifiable)
}

// openRefetched opens a file that a pull's process has left, which has ended: it must be the blob with that digest.
func openRefetched(path string, want digest.Digest) (_ *os.File, err error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: it was found to be corrupt meanwhile: pull the image again", errdefs.ErrUnavailable)
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, errors.New("the pull's process has left no regular file"))
	}
	if err := want.Validate(); err != nil {
		return nil, err
	}
	sum := want.Verifier()
	if _, err := io.Copy(sum, file); err != nil {
		return nil, err
	}
	if !sum.Verified() {
		return nil, fmt.Errorf("the pull's process has left a file without the digest %s", want)
	}
	_, err = file.Seek(0, io.SeekStart)
	return file, err
}

// replaceLayerFiles moves the current files of a layer away and unpacks it again. After a crash in the middle the layer
// is still recorded as corrupt.
func (s *Store) replaceLayerFiles(id string, tar io.Reader) error {
	dir := s.layout.LayerFiles(id)
	mode, uid, gid := os.FileMode(0o755), 0, 0
	info, err := os.Stat(dir)
	if err == nil {
		mode = info.Mode()
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			uid, gid = int(st.Uid), int(st.Gid)
		}
		retired := retiredPrefix + strconv.FormatInt(time.Now().UnixNano(), 10)
		err = os.Rename(dir, filepath.Join(filepath.Dir(dir), retired))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := errors.Join(os.Lchown(dir, uid, gid), os.Chmod(dir, mode)); err != nil {
		return err
	}
	if _, err := s.storage.ApplyDiff(id, tar); err != nil {
		return err
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(os.NewSyscallError("syncfs", unix.Syncfs(int(f.Fd()))), f.Close())
}

// removeRetired deletes the replaced files of a layer, unless a container may have them mounted.
func (s *Store) removeRetired(layer string) {
	dir := filepath.Dir(s.layout.LayerFiles(layer))
	entries, err := os.ReadDir(dir)
	if err != nil || s.layerInUse(layer) {
		return
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), retiredPrefix) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			s.log.WithError(err).WithField("layer", layer).Warn("failed to delete replaced files of a layer")
		}
	}
}

// removeAllRetired is removeRetired for all layers, at start: containers that had the files mounted may be gone.
func (s *Store) removeAllRetired() {
	for layer := range s.index.Load().layers() {
		s.removeRetired(layer)
	}
}
