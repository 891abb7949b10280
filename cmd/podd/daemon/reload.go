package daemon

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/cmd/podd/admin"
	"github.com/podd-project/podd/cmd/podd/settings"
	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/image/registry"
	"github.com/podd-project/podd/oci/spec/host"
	"github.com/podd-project/podd/sandbox"
)

// requestReload makes reloadOnRequest reload. It does not wait.
func (d *daemon) requestReload() {
	select {
	case d.reloads <- struct{}{}:
	default: // one is due already
	}
}

// reloadOnRequest reloads the configuration when a signal asks for it, until ctx ends.
func (d *daemon) reloadOnRequest(ctx context.Context, n *Node) {
	for {
		select {
		case <-d.reloads:
			_, _ = d.reload(ctx, n) // it has logged an error
		case <-ctx.Done():
			return
		}
	}
}

// reload rereads the files and replaces the whole configuration, or keeps the present one and returns why.
func (d *daemon) reload(ctx context.Context, n *Node) (admin.Reload, error) {
	d.reloading.Lock()
	defer d.reloading.Unlock()
	if ctx.Err() != nil {
		return admin.Reload{}, context.Cause(ctx)
	}
	old := d.current.Load()
	next, changed, err := d.nextGeneration(ctx, old)
	if err == nil {
		err = d.apply(n, old, next)
	}
	if err != nil {
		kept := *old
		kept.failed = err
		d.current.Store(&kept)
		d.log.WithError(err).WithField("generation", old.number).
			Error("failed to reload the configuration, keeping the present one")
		return admin.Reload{}, fmt.Errorf("%w: the configuration is not reloaded: %w", errdefs.ErrFailedPrecondition, err)
	}
	d.current.Store(next)
	d.log.WithFields(logrus.Fields{"generation": next.number, "changed": changed}).Info("reloaded the configuration")
	d.background.Go(func() { n.preload(ctx, d.log) })
	return admin.Reload{Generation: next.number, Changed: append([]string{}, changed...)}, nil
}

// awaitReload returns when no reload is in progress. None starts after the context of reloads has ended.
func (d *daemon) awaitReload() {
	d.reloading.Lock()
	defer d.reloading.Unlock()
}

// nextGeneration reads and checks the configuration and makes its handlers. Those that did not change are kept, with
// their state of containers.
func (d *daemon) nextGeneration(ctx context.Context, old *generation) (*generation, []string, error) {
	l, err := d.load()
	if err != nil {
		return nil, nil, err
	}
	values := l.Values()
	changed := settings.ChangedKeys(old.values, values)
	if err := settings.CheckLive(changed); err != nil {
		return nil, nil, err
	}
	cfg := &l.Config
	if err := d.complete(cfg); err != nil {
		return nil, nil, err
	}
	if err := errors.Join(registry.Inspect(cfg.Image)...); err != nil {
		return nil, nil, err
	}
	if check := image.QuotaCheck(cfg.Image); check != nil {
		if err := check(cfg.Root); err != nil {
			return nil, nil, err
		}
	}
	if err := host.CheckBlockIO(cfg.Runtime.BlockIOConfigFile); err != nil {
		return nil, nil, err
	}
	next := &generation{
		number: old.number + 1, cfg: cfg, values: values, runtimes: map[string]sandbox.Runtime{}, loaded: time.Now(),
	}
	for name := range cfg.Runtime.Handlers {
		if settings.SameHandler(old.cfg, cfg, name) {
			next.runtimes[name] = old.runtimes[name]
		} else {
			next.runtimes[name] = d.handler(ctx, cfg, name)
		}
	}
	return next, changed, nil
}

// complete sets the directories as at the start, and reads the files of the handlers.
func (d *daemon) complete(cfg *settings.Config) (err error) {
	cfg.Resolve(d.cfg.Root, d.cfg.Run)
	cfg.Runtime.Config.Handlers, err = cfg.HandlerConfigs()
	return err
}

// apply makes next the configuration of all parts.
func (d *daemon) apply(n *Node, old, next *generation) error {
	if err := n.Engine.Reconfigure(next.cfg.Runtime.Config, next.runtimes); err != nil {
		return err
	}
	n.Images.Reconfigure(next.cfg.Image)
	if !reflect.DeepEqual(old.cfg.Network, next.cfg.Network) {
		n.pods.Reconfigure(next.cfg.Network)
	}
	return configureLog(logrus.StandardLogger(), next.cfg.Log)
}
