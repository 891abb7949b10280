package image

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"
	"go.podman.io/image/v5/pkg/sysregistriesv2"
)

// Pull fetches an image, or joins the pull of the same name with the same credentials that is under way. The
// pull is detached from ctx: when the last caller is gone it goes on for Config.PullGrace, for the next one to join.
//
// Errors: errdefs.ErrInvalidArgument (malformed reference or credentials, image for another platform),
// errdefs.ErrNotFound, errdefs.ErrUnauthenticated, errdefs.ErrPermissionDenied, ErrSignatureInvalid,
// ErrRegistryUnavailable, errdefs.ErrResourceExhausted (disk full), and that of ctx.
func (s *Store) Pull(ctx context.Context, r PullRequest) (*Image, error) {
	if _, _, err := parseReference(r.Ref); err != nil {
		return nil, err
	}
	if _, full, _ := idPrefix(r.Ref); full {
		return nil, fmt.Errorf("pull %s: an image id is no name: %w", r.Ref, errdefs.ErrInvalidArgument)
	}
	r.Annotations = s.cfg.variant(r.Annotations)
	f := s.pulls.join(r, s.pull)
	defer s.pulls.leave(f)
	select {
	case <-f.done:
		return f.image, f.err
	case <-ctx.Done():
		return nil, fmt.Errorf("pull %s: %w", r.Ref, context.Cause(ctx))
	}
}

// Pulls tells of the pulls under way, oldest first. It answers from memory.
func (s *Store) Pulls() []PullProgress {
	return s.pulls.list()
}

// pull does one pull, for all that joined it, and logs its life.
func (s *Store) pull(ctx context.Context, r PullRequest, p *progress) (*Image, error) {
	log := s.log.WithField("image", r.Ref)
	if r.Namespace != "" {
		log = log.WithField("namespace", r.Namespace)
	}
	log.Info("pulling image")
	start := time.Now()
	stop := reportProgress(ctx, log, p)
	img, err := s.pullAny(ctx, r, p)
	stop()
	log = log.WithField("seconds", time.Since(start).Round(time.Millisecond).Seconds())
	if err != nil {
		err = newPullError(r.Ref, r.Auth, err)
		level := logrus.DebugLevel // whoever waits is told
		if p.snapshot().Callers == 0 {
			level = logrus.WarnLevel
		}
		log.WithError(err).Log(level, "cannot pull image")
		return nil, err
	}
	log.WithField("id", img.ID).WithField("bytes", p.snapshot().BytesDone).Info("pulled image")
	return img, nil
}

// pullAny tries what the reference may mean, in turn. The last error counts: it is that of the likeliest registry
// for all but short names.
func (s *Store) pullAny(ctx context.Context, r PullRequest, p *progress) (*Image, error) {
	sysregistriesv2.InvalidateCache() // registries.conf may have changed
	refs, err := candidates(s.systemContext(), r.Ref)
	if err != nil {
		return nil, err
	}
	for _, ref := range refs {
		var img *Image
		if img, err = s.fetch(ctx, ref, r, p); err == nil {
			return img, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	return nil, err
}
