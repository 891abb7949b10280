package nri

import (
	"context"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/sandbox/lifecycle"
)

// idlePlugin subscribes to everything that a pod's start has, and does nothing.
type idlePlugin struct{ synced chan struct{} }

func (p *idlePlugin) Synchronize(context.Context, []*api.PodSandbox, []*api.Container) ([]*api.ContainerUpdate, error) {
	close(p.synced)
	return nil, nil
}

func (p *idlePlugin) RunPodSandbox(context.Context, *api.PodSandbox) error { return nil }

func (p *idlePlugin) CreateContainer(context.Context, *api.PodSandbox, *api.Container) (
	*api.ContainerAdjustment, []*api.ContainerUpdate, error,
) {
	return nil, nil, nil
}

func (p *idlePlugin) StartContainer(context.Context, *api.PodSandbox, *api.Container) error {
	return nil
}

// BenchmarkPodStart is what plugins add to the start of a pod with one container.
func BenchmarkPodStart(b *testing.B) {
	b.Run("no plugin", func(b *testing.B) {
		log := logrus.New()
		benchmarkStart(b, New(DefaultConfig(), "", log))
	})
	b.Run("one idle plugin", func(b *testing.B) {
		n := newNode(b, nil, nil)
		p := &idlePlugin{synced: make(chan struct{})}
		s, err := stub.New(p, stub.WithSocketPath(n.socket), stub.WithPluginName("idle"), stub.WithPluginIdx("10"),
			stub.WithOnClose(func() {}), stub.WithLogger(quiet{}))
		if err == nil {
			err = s.Start(b.Context())
		}
		if err != nil {
			b.Fatal(err)
		}
		defer s.Stop()
		<-p.synced
		benchmarkStart(b, n.Plugins)
	})
}

func benchmarkStart(b *testing.B, p *Plugins) {
	b.ReportAllocs()
	for b.Loop() {
		c := newCreation("c1")
		if err := p.RunPod(b.Context(), c.Container.Pod); err != nil {
			b.Fatal(err)
		}
		if _, err := p.Create(b.Context(), c); err != nil {
			b.Fatal(err)
		}
		if err := p.Start(b.Context(), c.Container); err != nil {
			b.Fatal(err)
		}
		p.PostContainer(lifecycle.Deleted, c.Container)
		p.PostPod(lifecycle.Deleted, c.Container.Pod)
	}
}
