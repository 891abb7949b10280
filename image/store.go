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

	"github.com/podd-project/podd/checkpoint"
	"github.com/podd-project/podd/image/integrity"
	"github.com/podd-project/podd/image/lazy"
	"github.com/podd-project/podd/image/registry"
	"github.com/podd-project/podd/image/rootfs"
	"github.com/podd-project/podd/image/worker"
)

// Store holds images and the root filesystems made from them. It owns Node.Root; there must be one Store per
// directory. All methods may be called concurrently.
type Store struct {
	// settings are replaced as a whole, see Reconfigure.
	settings atomic.Pointer[Config]
	layout   worker.Layout

	log     *logrus.Entry
	storage storage.Store

	index      atomic.Pointer[index]
	stamp      atomic.Pointer[string]
	refreshing sync.Mutex // serialises refresh; held during I/O on purpose, readers do not take it

	preloaded *preloaded
	integrity *integrity.Checker
	// verifying has a place for each process that verifies stored signatures, allowed has their results.
	verifying chan struct{}
	allowed   verdicts
	pulls     *flights
	mounts    *rootfs.Mounts
	usage     *usage
	lazy      *lazy.Client
	ballast   *ballast
	removals  removals

	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
}

// New opens or creates the store. The node and the configuration must be valid. The program's main must have called
// Init and returned if that returned true: pulls and the unpacking of layers run in child processes.
func New(cfg Config, node Node, log logrus.FieldLogger) (*Store, error) {
	layout := worker.Layout{Root: node.Root, RunRoot: node.RunRoot}
	if err := prepare(layout); err != nil {
		return nil, fmt.Errorf("prepare image store: %w", err)
	}
	opened, err := worker.Open(layout)
	if err != nil {
		return nil, fmt.Errorf("open image store: %w", err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	s := &Store{
		log: log.WithField("component", "image"), storage: opened, layout: layout,
		pulls: newFlights(ctx, cfg.PullGrace), cancel: cancel,
		verifying: make(chan struct{}, maxVerifying),
		preloaded: loadPreloaded(layout.Preloaded()),
	}
	s.settings.Store(&cfg)
	if !FilesRestricted() {
		s.log.Warn("the kernel has no Landlock: processes of pulls, which parse what registries send, can read and " +
			"change files of the node")
	}
	if check := QuotaCheck(cfg); check != nil {
		if err := check(layout.Root); err != nil {
			s.log.WithError(err).Warn("no container can be created")
		}
	}
	s.usage = newUsage(s)
	s.ballast = &ballast{layout: layout, log: s.log}
	s.lazy = lazy.New(func() string { return s.cfg().AdditionalLayerStore }, s.log)
	stored := func(id string) bool { return s.index.Load().hasAll([]string{id}) }
	s.mounts = rootfs.New(layout.Root, layout.Rootfs(), stored, s.log)
	empty := newIndex(nil)
	empty.corrupt = newIndex(nil)
	s.index.Store(empty)
	s.integrity = s.openIntegrity(node.BootID)
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// QuotaCheck returns a function that returns why the filesystem of a directory lacks the quotas that the configuration
// needs; nil if it needs none.
func QuotaCheck(cfg Config) func(dir string) error {
	if cfg.MaxWritableBytes == 0 {
		return nil
	}
	return rootfs.CheckQuota
}

// cfg returns the present configuration.
func (s *Store) cfg() *Config { return s.settings.Load() }

// Reconfigure replaces the configuration, which must be valid. Pulls in progress use the former one. PullGrace stays as
// it was.
func (s *Store) Reconfigure(cfg Config) {
	s.settings.Store(&cfg)
	if err := s.refresh(); err != nil { // other images may be pinned
		s.log.WithError(err).Warn("failed to reread the image store for a new configuration")
	}
}

// start loads the index and starts the background goroutines.
func (s *Store) start(ctx context.Context) error {
	if err := s.refresh(); err != nil {
		return fmt.Errorf("open image store: %w", err)
	}
	if err := s.mounts.Recover(); err != nil {
		return fmt.Errorf("open image store: %w", err)
	}
	s.integrity.RemoveRetired()
	s.ballast.fill()
	s.removeHidden(ctx)
	s.wg.Go(func() { s.integrity.VerifyAfterPowerLoss(ctx) })
	s.wg.Go(func() { s.watchStorage(ctx) })
	s.wg.Go(func() { s.lazy.Run(ctx) })
	s.wg.Go(func() { s.usage.run(ctx) })
	s.wg.Go(func() { s.mounts.Run(ctx) })
	return nil
}

// Close ends running pulls and the background goroutines, and closes storage. Root filesystems stay mounted: they
// belong to containers, which outlive the daemon. Nothing else stays mounted.
func (s *Store) Close() error {
	s.cancel(registry.ErrClosing)
	s.pulls.wait()
	s.wg.Wait()
	worker.Free(s.storage)
	return s.integrity.Close()
}

// prepare makes the directories. Everyone may search Root, because the root of a user namespace must reach its own root
// filesystem, but not list it (CVE-2021-41103 was a store where everyone could). No file in Root may be open to
// others: see makeLocks.
func prepare(l worker.Layout) error {
	if err := os.MkdirAll(l.RunRoot, 0o700); err != nil {
		return err
	}
	for _, dir := range []struct {
		path string
		mode os.FileMode
	}{
		{l.Root, 0o711},
		{l.Rootfs(), 0o711},
		{l.Cache(), 0o700},
		{filepath.Join(l.Root, "overlay"), 0o700},
		// A pull's process may change only directories that exist when it starts.
		{l.Images(), 0o700},
		{l.Layers(), 0o700},
	} {
		if err := os.MkdirAll(dir.path, dir.mode); err != nil {
			return err
		}
		if err := os.Chmod(dir.path, dir.mode); err != nil { // whatever the umask
			return err
		}
	}
	if err := checkpoint.Sweep(l.Root); err != nil {
		return err
	}
	if err := makeLocks(l.Root); err != nil {
		return err
	}
	if err := os.RemoveAll(l.Temp()); err != nil { // partial layers from before a crash
		return err
	}
	return os.Mkdir(l.Temp(), 0o700)
}
