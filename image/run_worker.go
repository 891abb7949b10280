package image

import (
	"context"

	"github.com/podd-project/podd/image/registry"
	"github.com/podd-project/podd/image/worker"
)

// runWorker does a job in a confined process, and looks layers up for it.
func (s *Store) runWorker(
	ctx context.Context, job worker.Job, c *registry.PullConfig, p worker.Observer,
) (worker.Result, error) {
	job.Layout = s.layout
	defer s.usage.request() // a job that fails may have stored layers
	return worker.Run(ctx, job, c, worker.Daemon{
		Log: s.log, Progress: p,
		LookUp: func(r worker.LookUp) (worker.Found, error) {
			found, err := s.lazy.LookUp(ctx, job.Ref, r.Manifest, r.Layers)
			return worker.Found{Found: found}, err
		},
	})
}
