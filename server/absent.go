package server

import (
	"context"

	"github.com/containerd/errdefs"
)

// onPod calls act with the pod's full id, see ifPresent.
func (s *Server) onPod(ctx context.Context, id string, act func(context.Context, string) error) error {
	return ifPresent(ctx, id, act, func(id string) (string, error) {
		p, err := s.deps.Engine.Pod(id)
		if err != nil {
			return "", err
		}
		return p.ID, nil
	})
}

// onContainer calls act with the container's full id, see ifPresent.
func (s *Server) onContainer(ctx context.Context, id string, act func(context.Context, string) error) error {
	return ifPresent(ctx, id, act, func(id string) (string, error) {
		c, err := s.deps.Engine.Container(id)
		if err != nil {
			return "", err
		}
		return c.ID, nil
	})
}

// ifPresent calls act with the full id that find returns. It is not an error if find returns ErrNotFound, before act or
// after act failed with it: Stop and Remove are idempotent in CRI. An ErrNotFound about anything else is returned.
func ifPresent(
	ctx context.Context, id string, act func(context.Context, string) error, find func(string) (string, error),
) error {
	id, err := find(id)
	if err != nil {
		return unlessNotFound(err)
	}
	if err = act(ctx, id); errdefs.IsNotFound(err) {
		if _, gone := find(id); errdefs.IsNotFound(gone) {
			return nil
		}
	}
	return err
}

func unlessNotFound(err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}
