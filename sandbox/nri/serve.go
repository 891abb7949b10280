package nri

import (
	"context"
	"errors"
	"net"
	"runtime/debug"
	"time"

	"github.com/podd-project/podd/sandbox/record"
)

// acceptRetry is the time after which a failed accept is tried again.
const acceptRetry = time.Second

// Run serves the plugins that connect to l, which may be nil, and those in the plugin directory, until ctx ends. It
// closes l, and returns when all plugins are disconnected. The engine must have its pods.
func (p *Plugins) Run(ctx context.Context, engine Engine, l net.Listener) {
	p.adopt(engine)
	defer p.work.Wait()
	for _, one := range p.installed() {
		p.work.Go(func() { p.keepRunning(ctx, one) })
	}
	if l == nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	p.accept(ctx, l)
}

// adopt makes known pods and containers that were created before podd started. Unfinished creations are undone.
func (p *Plugins) adopt(engine Engine) {
	pods, containers := engine.Existing()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.engine = engine
	for _, pod := range pods {
		if pod.Status.State == record.PodReady {
			p.pods[pod.ID] = &object{}
		}
	}
	for _, c := range containers {
		if c.Status.State != record.ContainerCreating {
			p.containers[c.ID] = &object{}
		}
	}
}

// accept serves connections until ctx ends.
func (p *Plugins) accept(ctx context.Context, l net.Listener) {
	for {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			p.log.WithError(err).Error("failed to accept an NRI plugin, trying again")
			time.Sleep(acceptRetry)
			continue
		}
		p.work.Go(func() {
			if _, err := p.connect(ctx, conn, program{}); err != nil && ctx.Err() == nil {
				p.log.WithError(err).Warn("failed to connect an NRI plugin")
			}
		})
	}
}

// libraryVersion returns the version of the NRI library, for plugins.
func libraryVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, dep := range info.Deps {
		if dep.Path == "github.com/containerd/nri" {
			return dep.Version
		}
	}
	return "unknown"
}
