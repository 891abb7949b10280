package worker

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/containers/ocicrypt/config"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/types"
	"go.podman.io/storage"

	"github.com/podd-project/podd/image/registry"
)

// worker does one job in a pull's process, which opens the store's directory next to the daemon. It has no index and
// never calls the daemon's Store.
type worker struct {
	cfg     registry.Config
	storage storage.Store
	layout  Layout
	// temp is for temporary files; the daemon removes it.
	temp string
	// keys are those that decrypt the layers of the image in progress.
	keys *config.DecryptConfig
	// lookUp asks the daemon for layers of the additional layer store. Nil: there is none.
	lookUp func(context.Context, LookUp) (Found, error)
}

// systemContext configures containers/image as the daemon does.
func (w *worker) systemContext() *types.SystemContext { return w.layout.SystemContext(w.cfg, w.temp) }

// doPull opens the store's directory next to the daemon and copies an image, or those of a file, into it, or verifies
// one.
func doPull(ctx context.Context, job Job, out *reporter, replies <-chan Found) (Result, error) {
	if job.Part != nil {
		return Result{}, job.sendPart(ctx, os.NewFile(partFD, "part"))
	}
	opened, err := Open(job.Layout)
	if err != nil {
		return Result{}, fmt.Errorf("open image store: %w", err)
	}
	w := &worker{cfg: job.Config, storage: opened, layout: job.Layout, temp: job.Dir}
	if job.Verify != "" {
		return Result{ID: job.Verify}, w.verifyStored(ctx, job.Verify, job.Names)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	done := make(chan struct{})
	defer close(done)
	wg.Go(func() {
		ticker := time.NewTicker(reportInterval)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				_ = out.flush() // the last report fails too
			}
		}
	})
	if job.Load != "" {
		return Result{}, loadError((&loader{worker: w, job: job, out: out}).load(ctx))
	}
	named, err := reference.ParseNamed(job.Ref)
	if err != nil {
		return Result{}, err
	}
	sys := w.systemContext()
	if err := job.Auth.Apply(sys, named); err != nil {
		return Result{}, err
	}
	if job.Config.AdditionalLayerStore != "" {
		w.lookUp = func(ctx context.Context, r LookUp) (Found, error) { return r.send(ctx, out, replies) }
	}
	var result Result
	err = job.Config.Guard(ctx, sys, named, job.Hosts, func(ctx context.Context) (err error) {
		result, err = w.transfer(ctx, transferJob{sys, named, job.Annotations, job.Corrupt}, out)
		return err
	})
	return result, err
}
