package server

import (
	"context"

	"github.com/containerd/errdefs"
)

// onPod calls act with the pod's full id. A pod that is not there, or is gone after act, is no error: CRI wants
// Stop and Remove idempotent. Only the pod itself may be missing: an ErrNotFound about anything else is reported.
func (s *Server) onPod(ctx context.Context, id string, act func(context.Context, string) error) error {
	p, err := s.deps.Engine.Pod(id)
	if err != nil {
		return unlessNotFound(err)
	}
	if err = act(ctx, p.Record.ID); errdefs.IsNotFound(err) {
		if _, gone := s.deps.Engine.Pod(p.Record.ID); errdefs.IsNotFound(gone) {
			return nil
		}
	}
	return err
}

// onContainer is onPod for a container.
func (s *Server) onContainer(ctx context.Context, id string, act func(context.Context, string) error) error {
	c, err := s.deps.Engine.Container(id)
	if err != nil {
		return unlessNotFound(err)
	}
	if err = act(ctx, c.Record.ID); errdefs.IsNotFound(err) {
		if _, gone := s.deps.Engine.Container(c.Record.ID); errdefs.IsNotFound(gone) {
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
