package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/sirupsen/logrus"
	"go.podman.io/storage"
	storagetypes "go.podman.io/storage/types"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/checkpoint"
)

// Directories below Config.Root, beside those of containers/storage.
const (
	rootfsDir = "rootfs" // root filesystems and image volumes of containers
	tempDir   = "tmp"    // layers on their way in; emptied at start
	cacheDir  = "cache"  // which registry has which blob
)

// Store keeps images and the root filesystems made of them. It owns Config.Root; one Store per directory.
// All methods may be called concurrently.
type Store struct {
	cfg     Config
	log     *logrus.Entry
	storage storage.Store

	index      atomic.Pointer[index]
	stamp      atomic.Pointer[stamp]
	refreshing sync.Mutex // serialises refresh; held over I/O on purpose, no reader takes it

	preloaded *preloaded
	integrity *integrity
	// mending is taken by who fetches a damaged layer again.
	repairing chan struct{}
	pulls     *flights
	refs      *imageRefs
	usage     *usage
	rwUsage   *rwUsage
	oldKernel atomic.Bool // mounts overlays by mount(2) only

	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
}

// storesMu guards the table of open stores that containers/storage keeps for the whole process: its Free does not.
var storesMu sync.Mutex

// New opens or creates the store. The program's main must have called reexec.Init of go.podman.io/storage/pkg/reexec
// and returned if it said true: layers are unpacked in a child process.
func New(cfg Config, log logrus.FieldLogger) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("image store: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	if err := prepare(cfg); err != nil {
		return nil, fmt.Errorf("prepare image store: %w", err)
	}
	opened, err := open(cfg)
	if err != nil {
		return nil, fmt.Errorf("open image store: %w", err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	s := &Store{
		cfg: cfg, log: log.WithField("component", "image"), storage: opened,
		pulls: newFlights(ctx, cfg.PullGrace), refs: newImageRefs(), cancel: cancel,
		repairing: make(chan struct{}, 1),
		preloaded: loadPreloaded(filepath.Join(cfg.Root, preloadedFile)),
	}
	s.usage = newUsage(s)
	s.rwUsage = newRWUsage(s, rwMaxAge)
	empty := newIndex(nil)
	empty.corrupt = newIndex(nil)
	s.index.Store(empty)
	if s.integrity, err = openIntegrity(filepath.Join(cfg.Root, integrityFile), cfg.BootID); err != nil {
		s.log.WithError(err).Warn("a power loss would not be noticed at the next start")
	}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// start reads what is there and begins the background work.
func (s *Store) start(ctx context.Context) error {
	if err := s.refresh(); err != nil {
		return fmt.Errorf("open image store: %w", err)
	}
	if err := s.recoverRootfs(); err != nil {
		return fmt.Errorf("open image store: %w", err)
	}
	s.removeAllRetired()
	s.wg.Go(func() { s.verifyAfterPowerLoss(ctx) })
	s.wg.Go(func() { s.watchStorage(ctx) })
	s.wg.Go(func() { s.usage.run(ctx) })
	s.wg.Go(func() { s.rwUsage.run(ctx) })
	return nil
}

// Close ends running pulls and the background work, and closes storage. Root filesystems stay mounted: they belong
// to containers, which outlive the daemon. Nothing else stays mounted.
func (s *Store) Close() error {
	s.cancel(errClosing)
	s.pulls.wait()
	s.wg.Wait()
	storesMu.Lock()
	defer storesMu.Unlock()
	s.storage.Free()
	if s.integrity == nil {
		return nil
	}
	return s.integrity.markClosed(s.cfg.SyncLayers)
}

// prepare makes the directories. Root can be searched by everyone, for the root of a user namespace must reach its
// own root filesystem; what is in it can not (CVE-2021-41103 was a store where it could).
func prepare(cfg Config) error {
	if err := os.MkdirAll(cfg.RunRoot, 0o700); err != nil {
		return err
	}
	for _, dir := range []struct {
		path string
		mode os.FileMode
	}{
		{cfg.Root, 0o711},
		{filepath.Join(cfg.Root, rootfsDir), 0o711},
		{filepath.Join(cfg.Root, cacheDir), 0o700},
		{filepath.Join(cfg.Root, "overlay"), 0o700},
	} {
		if err := os.MkdirAll(dir.path, dir.mode); err != nil {
			return err
		}
		if err := os.Chmod(dir.path, dir.mode); err != nil { // whatever the umask
			return err
		}
	}
	if err := checkpoint.Sweep(cfg.Root); err != nil {
		return err
	}
	temp := filepath.Join(cfg.Root, tempDir)
	if err := os.RemoveAll(temp); err != nil { // halves of layers, from before a crash
		return err
	}
	return os.Mkdir(temp, 0o700)
}

// open opens containers/storage. Its own mount over overlay/ is left out (skip_mount_home): nothing but root
// filesystems may stay mounted when podd ends.
func open(cfg Config) (storage.Store, error) {
	options := []string{"overlay.skip_mount_home=true"}
	if cfg.SyncLayers {
		options = append(options, "overlay.sync=filesystem")
	}
	return storage.GetStore(storagetypes.StoreOptions{
		RunRoot:            cfg.RunRoot,
		GraphRoot:          cfg.Root,
		GraphDriverName:    "overlay",
		GraphDriverOptions: options,
		// A layer fetched in parts is identified by its table of contents, and so would be the image: its id
		// would no longer be the digest of its config.
		PullOptions: map[string]string{"enable_partial_images": "false"},
	})
}
