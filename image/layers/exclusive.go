package layers

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"go.podman.io/storage"
	"golang.org/x/sys/unix"
)

// Exclusive returns a store that stores each layer once, whichever process of podd does it: storage replaces the files
// of a layer that it has when an unpacked one is stored again, though containers may have them mounted. lock is the
// path of a file of which a byte is locked for each layer.
func Exclusive(store storage.Store, lock string) storage.Store {
	return &exclusive{Store: store, lock: lock}
}

type exclusive struct {
	storage.Store
	lock string
}

// PutLayer refuses to have storage unpack a layer, which does so with other rules and without limits: Adder does it.
func (*exclusive) PutLayer(
	string, string, []string, string, bool, *storage.LayerOptions, io.Reader,
) (*storage.Layer, int64, error) {
	return nil, -1, errors.New("podd does not unpack such a layer: it must be a tar, also compressed with gzip or zstd, " +
		"of the registry itself, with a size and with SHA-256 digests in the manifest and the config")
}

// ApplyStagedLayer is that of storage.Store, but fails with storage.ErrDuplicateID if the store has the layer.
func (e *exclusive) ApplyStagedLayer(args storage.ApplyStagedLayerOptions) (_ *storage.Layer, err error) {
	unlock, err := e.lockLayer(args.ID)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if _, err := e.Layer(args.ID); err == nil {
		return nil, errors.Join(storage.ErrDuplicateID, e.CleanupStagedLayer(args.DiffOutput))
	} else if !errors.Is(err, storage.ErrLayerUnknown) {
		return nil, err
	}
	return e.Store.ApplyStagedLayer(args)
}

// lockLayer waits until no other process or goroutine stores the layer. The kernel unlocks it when the process ends.
func (e *exclusive) lockLayer(id string) (unlock func() error, err error) {
	const digits = 14 // an offset of 56 bits
	var at int64
	raw, err := hex.DecodeString(id[:min(digits, len(id))])
	if err != nil {
		return nil, fmt.Errorf("layer id %q: %w", id, err)
	}
	for _, b := range raw {
		at = at<<8 | int64(b)
	}
	file, err := os.OpenFile(e.lock, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: at, Len: 1}
	for {
		err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLKW, &lock)
		if err == nil {
			return file.Close, nil
		}
		if !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock layer %s: %w", id, err), file.Close())
		}
	}
}
