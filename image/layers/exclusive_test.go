package layers_test

import (
	"errors"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.podman.io/storage"
	drivers "go.podman.io/storage/drivers"

	"github.com/podd-project/podd/image/layers"
)

// TestExclusive: two stores on one lock file, as of two processes, look a layer up and store it one after the other.
func TestExclusive(t *testing.T) {
	fake := &meetingStore{both: make(chan struct{})}
	lock := filepath.Join(t.TempDir(), "lock")
	var results [2]error
	var wg sync.WaitGroup
	for i := range results {
		store := layers.Exclusive(fake, lock)
		wg.Go(func() {
			_, results[i] = store.ApplyStagedLayer(storage.ApplyStagedLayerOptions{ID: "0123456789abcdef"})
		})
	}
	wg.Wait()
	if fake.stored != 1 || errors.Is(results[0], storage.ErrDuplicateID) == errors.Is(results[1], storage.ErrDuplicateID) {
		t.Errorf("stored %d times (%v, %v), want once, and %v for the other", fake.stored, results[0], results[1],
			storage.ErrDuplicateID)
	}
}

// TestExclusiveFailsClosed: a layer is not stored if it is not known whether the store has it.
func TestExclusiveFailsClosed(t *testing.T) {
	broken := &brokenStore{}
	store := layers.Exclusive(broken, filepath.Join(t.TempDir(), "lock"))
	_, err := store.ApplyStagedLayer(storage.ApplyStagedLayerOptions{ID: "0123456789abcdef"})
	if !errors.Is(err, syscall.EMFILE) || broken.stored != 0 {
		t.Errorf("ApplyStagedLayer = %v, stored %d times, want %v and none", err, broken.stored, syscall.EMFILE)
	}
}

// brokenStore cannot read its records.
type brokenStore struct{ meetingStore }

func (b *brokenStore) Layer(string) (*storage.Layer, error) { return nil, syscall.EMFILE }

// meetingStore has the layers that were stored. Who looks one up waits for a moment for the other to do so.
type meetingStore struct {
	storage.Store
	mu      sync.Mutex
	lookups int
	stored  int
	both    chan struct{}
}

func (m *meetingStore) Layer(string) (*storage.Layer, error) {
	m.mu.Lock()
	known := m.stored > 0
	m.lookups++
	if m.lookups == 2 {
		close(m.both)
	}
	m.mu.Unlock()
	if known {
		return &storage.Layer{}, nil
	}
	select {
	case <-m.both:
	case <-time.After(200 * time.Millisecond):
	}
	return nil, storage.ErrLayerUnknown
}

func (m *meetingStore) ApplyStagedLayer(storage.ApplyStagedLayerOptions) (*storage.Layer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stored++
	return &storage.Layer{}, nil
}

func (m *meetingStore) CleanupStagedLayer(*drivers.DriverWithDifferOutput) error { return nil }
