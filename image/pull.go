package image

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"
	"go.podman.io/image/v5/pkg/sysregistriesv2"

	"github.com/podd-project/podd/image/registry"
)

// Pull fetches an image, or joins a pull of the same name with the same credentials and policy that is in progress. The
// pull does not depend on ctx: after its last caller is gone it continues for Config.PullGrace, so that another caller
// can join.
//
// Errors: errdefs.ErrInvalidArgument (malformed reference or credentials, image for another platform),
// errdefs.ErrNotFound, errdefs.ErrUnauthenticated, errdefs.ErrPermissionDenied, ErrSignatureInvalid,
// ErrRegistryUnavailable, errdefs.ErrResourceExhausted (disk full), and that of ctx.
func (s *Store) Pull(ctx context.Context, r PullRequest) (*Image, error) {
	if _, _, err := registry.ParseReference(r.Ref); err != nil {
		return nil, err
	}
	if _, full, _ := registry.IDPrefix(r.Ref); full {
		return nil, fmt.Errorf("pull %s: an image id is not a name: %w", r.Ref, errdefs.ErrInvalidArgument)
	}
	r.Annotations = s.cfg().Variant(r.Annotations)
	cfg, err := s.cfg().ForNamespace(r.Namespace)
	if err != nil {
		return nil, fmt.Errorf("pull %s: %w", r.Ref, err)
	}
	r.files = cfg.Policy + "\n" + cfg.AuthFile
	f := s.pulls.join(r, s.pull)
	defer s.pulls.leave(f)
	select {
	case <-f.done:
		return f.image, f.err
	case <-ctx.Done():
		return nil, fmt.Errorf("pull %s: %w", r.Ref, context.Cause(ctx))
	}
}

// Pulls returns, from memory, the pulls in progress and the images that are loaded from files, oldest first, and the
// names whose last pull failed, newest first.
func (s *Store) Pulls() ([]PullProgress, []PullFailure) { return s.pulls.list(), s.pulls.failed() }

// pull does one pull, for all callers that joined it, and logs its start and end.
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
	log = log.WithField("duration", time.Since(start).Round(time.Millisecond).String())
	if err != nil {
		err = registry.NewPullError(r.Ref, r.Auth, err)
		level := logrus.DebugLevel // the callers get the error
		if p.snapshot().Callers == 0 {
			level = logrus.WarnLevel
		}
		log.WithError(err).Log(level, "failed to pull image")
		return nil, err
	}
	log.WithField("id", img.ID).WithField("bytes", p.snapshot().BytesDone).Info("pulled image")
	return img, nil
}

// pullAny tries the candidates of a reference in turn and returns the error of the last one: only a short name has more
// than one.
func (s *Store) pullAny(ctx context.Context, r PullRequest, p *progress) (*Image, error) {
	sysregistriesv2.InvalidateCache() // registries.conf may have changed
	refs, err := s.cfg().Candidates(r.Ref, s.layout.RunRoot)
	if err != nil {
		return nil, err
	}
	if err := s.cfg().CheckShortName(refs); err != nil {
		return nil, err
	}
	_, short, _ := registry.ParseReference(r.Ref) // Candidates has parsed it
	if short {
		r.Auth = r.Auth.ForShortName()
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
	if short && r.Auth != nil && errdefs.IsUnauthorized(err) {
		err = fmt.Errorf("%w (credentials with a short name are for docker.io: use the full name)", err)
	}
	return nil, err
}
