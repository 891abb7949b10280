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

	"github.com/sirupsen/logrus"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/image/v5/pkg/blobinfocache/none"
	"go.podman.io/image/v5/types"
	"go.podman.io/storage"
	"golang.org/x/sys/unix"
)

// retiredPrefix is the prefix of a layer's replaced directories, next to its current one: containers may have them
// mounted.
const retiredPrefix = "damaged-"

// repair fetches the corrupt layers of a copied image again: the copy has skipped them because they exist.
func (s *Store) repair(ctx context.Context, job copyJob, img *storage.Image, p *progress) error {
	corrupt := s.integrity.corruptLayers()
	if len(corrupt) == 0 {
		return nil
	}
	chain, err := s.chain(img)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(chain, func(id string) bool { _, ok := corrupt[id]; return ok }) {
		return nil
	}
	blobs, err := s.layerBlobs(img.ID)
	if err != nil {
		return err
	}
	if len(blobs) != len(chain) {
		return fmt.Errorf("repair image %s: it has %d layers, its manifest %d", img.ID, len(chain), len(blobs))
	}
	select {
	case s.repairing <- struct{}{}: // another image may have the same layer
		defer func() { <-s.repairing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	source, err := job.from.NewImageSource(ctx, job.sys)
	if err != nil {
		return err
	}
	defer source.Close()
	corrupt = s.integrity.corruptLayers()
	for i, id := range chain {
		if _, ok := corrupt[id]; !ok {
			continue
		}
		if err := s.repairLayer(ctx, source, id, blobs[i], p); err != nil {
			return fmt.Errorf("fetch corrupt layer %s again: %w", id, err)
		}
	}
	return nil
}

// chain returns the ids of an image's layers, bottom first.
func (s *Store) chain(img *storage.Image) ([]string, error) {
	var ids []string
	for id := img.TopLayer; id != ""; {
		layer, err := s.storage.Layer(id)
		if err != nil {
			return nil, fmt.Errorf("layer %s: %w", id, err)
		}
		ids = append(ids, id)
		id = layer.Parent
	}
	slices.Reverse(ids)
	return ids, nil
}

// layerBlobs returns the layers in an image's manifest, bottom first.
func (s *Store) layerBlobs(id string) ([]manifest.LayerInfo, error) {
	blob, err := s.blob(id, storage.ImageDigestBigDataKey)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	man, err := manifest.FromBlob(blob, manifest.GuessMIMEType(blob))
	if err != nil {
		return nil, fmt.Errorf("parse manifest: %w", err)
	}
	return slices.DeleteFunc(man.LayerInfos(), func(l manifest.LayerInfo) bool { return l.EmptyLayer }), nil
}

func (s *Store) repairLayer(
	ctx context.Context, source types.ImageSource, id string, blob manifest.LayerInfo, p *progress,
) error {
	file, err := s.fetchBlob(ctx, source, blob.BlobInfo, p)
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
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

// fetchBlob downloads a blob into a file, which the caller deletes, and checks its digest.
func (s *Store) fetchBlob(
	ctx context.Context, source types.ImageSource, blob types.BlobInfo, p *progress,
) (_ *os.File, err error) {
	if err := blob.Digest.Validate(); err != nil {
		return nil, err
	}
	body, _, err := source.GetBlob(ctx, blob, none.NoCache)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	file, err := os.CreateTemp(filepath.Join(s.cfg().Root, tempDir), "layer-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close(), os.Remove(file.Name()))
		}
	}()
	p.restartBlob(blob)
	sum := blob.Digest.Verifier()
	most := blob.Size
	if most < 0 { // old manifests have no sizes
		most = s.cfg().MaxImageBytes
	}
	from := &progressReader{ctx: ctx, from: io.LimitReader(body, most+1), blob: blob, to: p}
	n, err := io.Copy(io.MultiWriter(file, sum), from)
	if err != nil {
		return nil, err
	}
	if n > most {
		return nil, fmt.Errorf("the registry's blob has more than %d bytes", most)
	}
	if !sum.Verified() {
		return nil, fmt.Errorf("the registry's blob does not have the digest %s", blob.Digest)
	}
	p.note(types.ProgressProperties{Event: types.ProgressEventDone, Artifact: blob})
	_, err = file.Seek(0, io.SeekStart)
	return file, err
}

// progressReader reports what it reads of a blob to the pull's progress, so that a stalled registry is noticed.
type progressReader struct {
	ctx  context.Context
	from io.Reader
	blob types.BlobInfo
	to   *progress
	done uint64
}

func (n *progressReader) Read(b []byte) (int, error) {
	if n.ctx.Err() != nil {
		return 0, context.Cause(n.ctx)
	}
	c, err := n.from.Read(b)
	n.done += uint64(c)
	n.to.note(types.ProgressProperties{
		Event: types.ProgressEventRead, Artifact: n.blob, Offset: n.done, OffsetUpdate: uint64(c),
	})
	return c, err
}

// replaceLayerFiles moves the current files of a layer away and unpacks it again. After a crash in the middle the layer
// is still recorded as corrupt.
func (s *Store) replaceLayerFiles(id string, tar io.Reader) error {
	dir := s.layerDir(id)
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
	if !s.cfg().SyncLayers {
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(os.NewSyscallError("syncfs", unix.Syncfs(int(f.Fd()))), f.Close())
}

// removeRetired deletes the replaced files of a layer, unless a container may have them mounted.
func (s *Store) removeRetired(layer string) {
	dir := filepath.Dir(s.layerDir(layer))
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
