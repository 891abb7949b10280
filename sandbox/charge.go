package sandbox

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/budget"
)

// share is an amount that is taken from a budget.
type share struct {
	budget budget.Reserved
	n      int64
}

// charge takes the shares for the pod until release, or returns a *budget.RefusedError.
func charge(pod string, shares []share) (release func(), err error) {
	var grants []*budget.Grant
	release = func() {
		for _, g := range grants {
			g.Release()
		}
	}
	for _, s := range shares {
		g, err := s.budget.Try(pod, s.n)
		if err != nil {
			release()
			return func() {}, err
		}
		grants = append(grants, g)
	}
	return release, nil
}

// chargeStored charges a pod or container of an earlier start: the shares that are refused stay uncounted.
func chargeStored(pod string, shares []share) (release func(), err error) {
	var releases []func()
	for _, s := range shares {
		r, refused := charge(pod, []share{s})
		releases, err = append(releases, r), errors.Join(err, refused)
	}
	return func() {
		for _, r := range releases {
			r()
		}
	}, err
}

// cost is p's share of the budgets while it exists.
func (p *Pod) cost(b *budget.Table) []share {
	answer := &cri.PodSandboxStatus{
		Metadata: p.Config.GetMetadata(), Labels: p.Config.GetLabels(), Annotations: p.Config.GetAnnotations(),
	}
	return []share{
		{b.Configurations, budget.Cost(p.Config)},
		{b.Answers, int64(proto.Size(answer))},
	}
}

// cost is c's share of the budgets while it exists.
func (c *Container) cost(ctx context.Context, e *Engine) []share {
	b, cfg := e.deps.Budgets, c.Config
	answer := &cri.ContainerStatus{
		Metadata: cfg.GetMetadata(), Image: cfg.GetImage(), Labels: cfg.GetLabels(), Annotations: cfg.GetAnnotations(),
		Mounts: cfg.GetMounts(), LogPath: cfg.GetLogPath(),
		Resources: &cri.ContainerResources{Linux: cfg.GetLinux().GetResources()},
	}
	configuration := budget.Cost(cfg)
	if img, err := e.deps.Images.Resolve(ctx, c.ImageID); err == nil { // its arguments and environment are in config.json
		for _, s := range slices.Concat(img.Config.Entrypoint, img.Config.Cmd, img.Config.Env) {
			configuration += int64(len(s))
		}
	}
	images := map[string]bool{}
	for _, m := range cfg.GetMounts() {
		if ref := m.GetImage().GetImage(); ref != "" {
			images[ref] = true
		}
	}
	return []share{
		{b.Configurations, configuration},
		{b.Answers, int64(proto.Size(answer))},
		{b.ImageMounts, int64(len(images))},
	}
}

// chargeCommand charges the description of a command, which is in the run directory: the process of the container's
// config.json, with another command.
func (e *Engine) chargeCommand(c *Container, process []byte, cmd []string) (release func(), err error) {
	size := budget.Cost(&cri.ExecRequest{Cmd: cmd}) + int64(len(process))
	return charge(c.pod.ID, []share{{e.deps.Budgets.Commands, size}})
}
