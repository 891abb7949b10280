package integrity

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/image/layers"
)

// retiredPrefix is the prefix of a layer's replaced directories, next to its current one: containers may have them
// mounted.
const retiredPrefix = "damaged-"

// Fetched is a layer of an image. If it is corrupt, a pull's process has fetched it again.
type Fetched struct {
	Layer string
	// Blob is the digest that the file at Path must have.
	Blob digest.Digest
	Path string
}

// Repair replaces the files of those layers that are corrupt.
func (c *Checker) Repair(ctx context.Context, fetched []Fetched) error {
	select {
	case c.repairing <- struct{}{}: // another image may have the same layer
		defer func() { <-c.repairing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	corrupt := c.record.corruptLayers()
	for _, f := range fetched {
		if _, ok := corrupt[f.Layer]; !ok {
			continue
		}
		if err := c.repairLayer(ctx, f); err != nil {
			return fmt.Errorf("repair corrupt layer %s: %w", f.Layer, err)
		}
	}
	return nil
}

func (c *Checker) repairLayer(ctx context.Context, f Fetched) error {
	id := f.Layer
	// Another image may have given this layer its id, by the same table of contents in another blob.
	if lazy, err := layers.ReadLazy(c.Files(id)); err == nil && lazy != nil {
		return fmt.Errorf("its files were in an additional layer store: remove the images with it, then pull or load "+
			"again: %w", errdefs.ErrFailedPrecondition)
	}
	file, err := openRefetched(f.Path, f.Blob)
	if err != nil {
		return err
	}
	defer file.Close()
	c.record.bumpVersion(id)
	defer c.removeRetired(id)
	if err := c.replaceLayerFiles(id, file); err != nil {
		return err
	}
	layer, err := c.Storage.Layer(id)
	if err != nil {
		return err
	}
	unverifiable := c.verifyFiles(ctx, layer)
	var corrupt corruptError
	if unverifiable != nil && !errors.As(unverifiable, &corrupt) {
		return unverifiable
	}
	log := c.Log.WithFields(logrus.Fields{"layer": id, "blob": f.Blob})
	if unverifiable != nil {
		log.WithError(unverifiable).Warn("failed to verify a layer that was fetched again, using it unverified")
	} else {
		log.Info("fetched a corrupt layer again")
	}
	return c.record.markRepaired(id, unverifiable)
}

// openRefetched opens a file that a pull's process has left, which has exited: it must be the blob with that digest.
func openRefetched(path string, want digest.Digest) (_ *os.File, err error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: it was found to be corrupt during the pull: pull the image again", errdefs.ErrUnavailable)
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
func (c *Checker) replaceLayerFiles(id string, tar io.Reader) error {
	dir := c.Files(id)
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
	if _, err := c.Storage.ApplyDiff(id, tar); err != nil {
		return err
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(os.NewSyscallError("syncfs", unix.Syncfs(int(f.Fd()))), f.Close())
}

// removeRetired deletes the replaced files of a layer, unless a container may have them mounted.
func (c *Checker) removeRetired(layer string) {
	dir := filepath.Dir(c.Files(layer))
	entries, err := os.ReadDir(dir)
	if err != nil || c.InUse(layer) {
		return
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), retiredPrefix) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			c.Log.WithError(err).WithField("layer", layer).Warn("failed to delete replaced files of a layer")
		}
	}
}

// RemoveRetired deletes the replaced files of all layers, at start: containers that had them mounted may be gone.
func (c *Checker) RemoveRetired() {
	for layer := range c.Layers() {
		c.removeRetired(layer)
	}
}
