package image

import (
	"context"
	"errors"

	"go.podman.io/image/v5/docker/reference"

	"github.com/podd-project/podd/image/layers"
	"github.com/podd-project/podd/image/worker"
)

// answerLookUp looks layers up for a pull's process. What is not found, for whatever reason, is fetched by it.
func (s *Store) answerLookUp(ctx context.Context, from string, r worker.LookUp) (worker.Found, error) {
	ref, err := reference.ParseNamed(from)
	if err != nil {
		return worker.Found{}, err
	}
	if err := r.Manifest.Validate(); err != nil {
		return worker.Found{}, err
	}
	canonical, err := reference.WithDigest(reference.TrimNamed(ref), r.Manifest)
	if err != nil {
		return worker.Found{}, err
	}
	ask := storeJob{Root: s.cfg().AdditionalLayerStore}
	for _, l := range r.Layers {
		if err := l.TOC.Validate(); err != nil {
			return worker.Found{}, err
		}
		l.Reference = canonical.String()
		ask.LookUp = append(ask.LookUp, l)
	}
	answers, err := s.askStore(ctx, ask)
	if ctx.Err() != nil {
		return worker.Found{}, context.Cause(ctx)
	}
	reply := worker.Found{Found: make([]*layers.Lazy, len(ask.LookUp))}
	missing := len(ask.LookUp)
	for i, a := range answers[:min(len(answers), len(ask.LookUp))] {
		if reply.Found[i] = a.Found; a.Found != nil {
			missing--
		} else if err == nil {
			err = errors.New(a.Error)
		}
	}
	if missing > 0 {
		s.log.WithError(err).WithField("image", canonical.String()).WithField("layers", missing).
			Warn("the additional layer store does not have layers of an image, fetching them")
	}
	return reply, nil
}
