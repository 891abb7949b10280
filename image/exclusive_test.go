package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/opencontainers/go-digest"
	"go.podman.io/storage"
	drivers "go.podman.io/storage/drivers"

	"github.com/podd-project/podd/image/worker"
)

// TestLayerIsStoredOnce: of pulls that store one layer at the same time one does, and its files stay: containers may
// have them mounted. The others leave nothing.
func TestLayerIsStoredOnce(t *testing.T) {
	const pulls, rounds = 8, 5
	dir := t.TempDir()
	layout := worker.Layout{Root: filepath.Join(dir, "s"), RunRoot: filepath.Join(dir, "run")}
	if err := prepare(layout); err != nil {
		t.Fatal(err)
	}
	store, err := worker.Open(layout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Free() })
	for round := range rounds {
		id := digest.FromString(fmt.Sprint(round))
		var stored, winner atomic.Int32
		var wg sync.WaitGroup
		for pull := range pulls {
			target := filepath.Join(layout.Temp(), fmt.Sprintf("%d-%d", round, pull), "files")
			if err := os.MkdirAll(filepath.Join(target, fmt.Sprint(pull)), 0o700); err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				_, err := store.ApplyStagedLayer(storage.ApplyStagedLayerOptions{
					ID: id.Encoded(), DiffOutput: &drivers.DriverWithDifferOutput{Target: target, UncompressedDigest: id},
				})
				if err == nil {
					stored.Add(1)
					winner.Store(int32(pull))
				} else if !errors.Is(err, storage.ErrDuplicateID) {
					t.Error(err)
				}
				if _, err := os.Stat(target); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("pull %d has left %s (%v)", pull, target, err)
				}
			})
		}
		wg.Wait()
		files, err := store.DifferTarget(id.Encoded())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(files, fmt.Sprint(winner.Load()))); stored.Load() != 1 || err != nil {
			t.Errorf("%d pulls have stored the layer, want one, whose files stay: %v", stored.Load(), err)
		}
	}
}
