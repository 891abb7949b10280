// Package integrity finds layers whose files are not those that were pulled, records them across restarts and power
// losses, and replaces their files.
//
// It owns the record of corrupt layers, and a layer's files while it replaces them. It knows layers, not images:
// Options has its questions about those. It fetches nothing: a pull's process does, and its files are not trusted. It
// runs in the daemon; image calls it.
package integrity

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"go.podman.io/storage"
	"golang.org/x/sys/unix"
)

// Options configure a Checker.
type Options struct {
	// Record is the path of the record, BootID the kernel's boot id. Without one no power loss is detected.
	Record, BootID string
	Storage        storage.Store
	Log            logrus.FieldLogger
	// Files returns the directory of a layer's files. Metadata is the directory with the metadata of all layers.
	Files    func(layer string) string
	Metadata string
	// Layers returns the layers of all images.
	Layers func() map[string]bool
	// InUse reports whether a container may have a layer mounted.
	InUse func(layer string) bool
	// ImagesUsing names the images with a layer.
	ImagesUsing func(layer string) []string
	// Changed is called when a layer was found to be corrupt, for the images to be hidden.
	Changed func() error
}

// Checker finds, records and replaces corrupt layers. All methods may be called concurrently.
type Checker struct {
	Options
	record *record
	// repairing is held while corrupt layers are replaced.
	repairing chan struct{}
}

// New reads the record and records that the store is open. The Checker is usable even if that fails.
func New(o Options) (*Checker, error) {
	r, err := openRecord(o.Record, o.BootID)
	return &Checker{Options: o, record: r, repairing: make(chan struct{}, 1)}, err
}

// Close records that the store was closed properly, unless layers are still to be verified.
func (c *Checker) Close() error { return c.record.markClosed() }

// Corrupt returns the corrupt layers by id, with the reason.
func (c *Checker) Corrupt() map[string]string { return c.record.corruptLayers() }

// CorruptIDs returns the ids of the corrupt layers, sorted.
func (c *Checker) CorruptIDs() []string { return slices.Sorted(maps.Keys(c.Corrupt())) }

// ForgetDeleted removes layers from the record that storage no longer has: others may get their ids.
func (c *Checker) ForgetDeleted() error {
	var gone []string
	for _, layer := range c.record.recordedLayers() {
		if _, err := c.Storage.Layer(layer); errors.Is(err, storage.ErrLayerUnknown) {
			gone = append(gone, layer)
		}
	}
	return c.record.forget(gone)
}

// VerifyAfterPowerLoss verifies all layers once if the machine went down while the store was open.
func (c *Checker) VerifyAfterPowerLoss(ctx context.Context) {
	if !c.record.pending() {
		return
	}
	start := time.Now()
	c.Log.Info("machine was not shut down cleanly, verifying the layers of all images")
	found, err := c.Verify(ctx, true)
	if err == nil {
		err = c.record.markVerified()
	}
	log := c.Log.WithFields(logrus.Fields{
		"corrupt_layers": len(found), "duration": time.Since(start).Round(time.Millisecond).String(),
	})
	switch {
	case err == nil:
		log.Info("verified the layers of all images")
	case ctx.Err() == nil:
		log.WithError(err).Error("failed to verify the layers of all images, retrying at the next start")
	}
}

// Verify returns the corrupt layers of all images, by id, with the reason. With mark they are recorded. It begins with
// the last pulled ones: they are the most likely to have been in memory only. It lowers the priority of the calling
// thread, which ends with the caller's goroutine.
func (c *Checker) Verify(ctx context.Context, mark bool) (map[string]string, error) {
	runtime.LockOSThread() // never unlocked: the thread keeps its low priority
	lowerPriority()
	layers, err := c.Storage.Layers()
	if err != nil {
		return nil, err
	}
	used := c.Layers()
	slices.SortFunc(layers, func(a, b storage.Layer) int {
		return cmp.Or(b.Created.Compare(a.Created), strings.Compare(a.ID, b.ID))
	})
	found := c.record.corruptLayers()
	if found == nil {
		found = map[string]string{}
	}
	for i := range layers {
		id := layers[i].ID
		if _, known := found[id]; known || !used[id] || c.record.unverifiable(id) {
			continue
		}
		version := c.record.version(id)
		err := c.verifyLayer(ctx, &layers[i])
		if bad, ok := errors.AsType[corruptError](err); ok {
			found[id], err = bad.text, nil
			if mark {
				err = c.mark(id, version, bad.text)
			}
		}
		if err != nil {
			return found, err
		}
	}
	return found, nil
}

// verifyLayer is verifyFiles for a layer that may be deleted concurrently.
func (c *Checker) verifyLayer(ctx context.Context, layer *storage.Layer) error {
	err := c.verifyFiles(ctx, layer)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if _, gone := c.Storage.Layer(layer.ID); errors.Is(gone, storage.ErrLayerUnknown) {
		return nil
	}
	return err
}

// Mark records a corrupt layer, whose images are hidden then.
func (c *Checker) Mark(layer, reason string) error {
	return c.mark(layer, c.record.version(layer), reason)
}

// mark is Mark, unless the files were replaced since version.
func (c *Checker) mark(layer string, version int, reason string) error {
	isNew, err := c.record.markCorrupt(layer, version, reason)
	if !isNew {
		return err
	}
	c.Log.WithFields(logrus.Fields{"layer": layer, "reason": reason, "images": c.ImagesUsing(layer)}).
		Error("layer is corrupt: its images are hidden until they are pulled again")
	return errors.Join(err, c.Changed())
}

// lowerPriority sets the calling thread to the lowest CPU and I/O priority that does not starve. Errors are ignored.
func lowerPriority() {
	const ioprioWhoProcess, bestEffort, lowest = 1, 2 << 13, 7 // ioprio_set(2)
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 19)
	_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, ioprioWhoProcess, 0, bestEffort|lowest)
}
