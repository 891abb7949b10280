package worker

import (
	"path/filepath"
	"sync"

	storagetypes "go.podman.io/storage/types"

	"go.podman.io/storage"

	"github.com/podd-project/podd/image/layers"
)

// Open opens containers/storage. Its own mount over overlay/ is disabled (skip_mount_home): only root filesystems may
// stay mounted when podd exits. The files of a layer are synced before the layer is recorded.
func Open(l Layout) (storage.Store, error) {
	storesMu.Lock()
	defer storesMu.Unlock()
	opened, err := storage.GetStore(storagetypes.StoreOptions{
		RunRoot:            l.RunRoot,
		GraphRoot:          l.Root,
		GraphDriverName:    "overlay",
		GraphDriverOptions: []string{"overlay.skip_mount_home=true", "overlay.sync=filesystem"},
		// A layer fetched in parts is identified by its table of contents, and so would be the image: its id would not
		// be the digest of its config.
		PullOptions: map[string]string{"enable_partial_images": "false"},
	})
	if err != nil {
		return nil, err
	}
	return layers.Exclusive(opened, filepath.Join(l.Cache(), layerLocks)), nil
}

// storesMu guards the process-wide table of open stores in containers/storage, which its Free does not lock against the
// opening of others.
var storesMu sync.Mutex

// layerLocks is a file in Layout.Cache, for layers.Exclusive.
const layerLocks = "layers.lock"

// Free closes a store that Open has opened.
func Free(opened storage.Store) {
	storesMu.Lock()
	defer storesMu.Unlock()
	opened.Free()
}
