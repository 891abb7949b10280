package lazy

import (
	"context"
	"errors"

	"github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/docker/reference"

	"github.com/podd-project/podd/image/layers"
)

// LookUp looks layers of a manifest up for a pull of the name from. It returns nil for each layer that it does not
// find, for whatever reason: the pull fetches that.
func (c *Client) LookUp(
	ctx context.Context, from string, manifest digest.Digest, of []layers.Wanted,
) ([]*layers.Lazy, error) {
	ref, err := reference.ParseNamed(from)
	if err != nil {
		return nil, err
	}
	if err := manifest.Validate(); err != nil {
		return nil, err
	}
	canonical, err := reference.WithDigest(reference.TrimNamed(ref), manifest)
	if err != nil {
		return nil, err
	}
	ask := job{Root: c.root()}
	for _, l := range of {
		if err := l.TOC.Validate(); err != nil {
			return nil, err
		}
		l.Reference = canonical.String()
		ask.LookUp = append(ask.LookUp, l)
	}
	answers, err := c.ask(ctx, ask)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	found := make([]*layers.Lazy, len(ask.LookUp))
	missing := len(ask.LookUp)
	for i, a := range answers[:min(len(answers), len(ask.LookUp))] {
		if found[i] = a.Found; a.Found != nil {
			missing--
		} else if err == nil {
			err = errors.New(a.Error)
		}
	}
	if missing > 0 {
		c.log.WithError(err).WithField("image", canonical.String()).WithField("layers", missing).
			Warn("the additional layer store does not have layers of an image, fetching them")
	}
	return found, nil
}
