package integrity

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"go.podman.io/storage"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/image/layers"
)

// retiredPrefix is the prefix of a layer's replaced directories, next to its current one: containers may have them
// mounted.
const retiredPrefix = "damaged-"

// Fetched is a layer of an image. If it is corrupt, a pull's process has fetched it again.
type Fetched struct {
	Layer string
	// Files is the directory of its files, TarSplit the file with the metadata of its tar, as storage has it.
	Files, TarSplit string
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
	layer, err := c.Storage.Layer(id)
	if err != nil {
		return err
	}
	if err := checkFetched(f); err != nil {
		return err
	}
	c.record.bumpVersion(id)
	defer c.removeRetired(id)
	if err := c.replaceFiles(layer, f); err != nil {
		return err
	}
	unverifiable := c.verifyFiles(ctx, layer)
	var corrupt corruptError
	if unverifiable != nil && !errors.As(unverifiable, &corrupt) {
		return unverifiable
	}
	log := c.Log.WithField("layer", id)
	if unverifiable != nil {
		log.WithError(unverifiable).Warn("failed to verify a layer that was fetched again, using it unverified")
	} else {
		log.Info("fetched a corrupt layer again")
	}
	return c.record.markRepaired(id, unverifiable)
}

// replaceFiles moves the files of a layer away and others to their place. After a crash in the middle the layer is
// still recorded as corrupt. The directory has the owner and mode of the old one, or of the layer below: the tar may
// not have them.
func (c *Checker) replaceFiles(layer *storage.Layer, by Fetched) error {
	dir := c.Files(layer.ID)
	for _, like := range []string{dir, c.Files(layer.Parent)} {
		var st unix.Stat_t
		if unix.Stat(like, &st) == nil {
			err := errors.Join(os.Chown(by.Files, int(st.Uid), int(st.Gid)), unix.Chmod(by.Files, st.Mode&0o7777))
			if err != nil {
				return err
			}
			break
		}
	}
	retired := retiredPrefix + strconv.FormatInt(time.Now().UnixNano(), 10)
	err := os.Rename(dir, filepath.Join(filepath.Dir(dir), retired))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(by.Files, dir); err != nil {
		return err
	}
	if err := os.Rename(by.TarSplit, filepath.Join(c.Metadata, layer.ID+tarSplitSuffix)); err != nil {
		return err
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(os.NewSyscallError("syncfs", unix.Syncfs(int(f.Fd()))), f.Close())
}

// checkFetched returns an error unless a pull's process, which has exited, has left the files of a layer.
func checkFetched(f Fetched) error {
	for _, want := range []struct {
		path string
		kind fs.FileMode
	}{{f.Files, fs.ModeDir}, {f.TarSplit, 0}} {
		info, err := os.Lstat(want.path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("%w: it was found to be corrupt during the pull: pull the image again", errdefs.ErrUnavailable)
		case err != nil:
			return err
		case info.Mode().Type() != want.kind:
			return fmt.Errorf("the pull's process has left a file of the wrong kind, %s", info.Mode())
		}
	}
	return nil
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
