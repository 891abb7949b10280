package usage

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"
)

const (
	// Freshness is the age up to which a sample is returned again instead of measured.
	Freshness = time.Second
	// Patience is how long a caller waits for a probe that has an older sample to return instead.
	Patience = 100 * time.Millisecond
	// FirstPatience is how long a caller waits for a probe without a sample, MeterPatience if a runtime is asked, which
	// on a busy machine takes some seconds.
	FirstPatience = time.Second
	MeterPatience = 5 * time.Second
	// parallel is how many probes measure at once in one request; stuck ones do not count.
	parallel = 4
	// detailsAsked is how long details are collected in the background after a request for them.
	detailsAsked = 5 * time.Minute
)

// Config has the dependencies and settings of a Collector.
type Config struct {
	// Interval is the time between two rounds of Run.
	Interval time.Duration
	// Cgroups, if nil, leaves everything but the network unmeasured; Disk, if nil, the writable layers.
	Cgroups Cgroups
	Disk    Disk
	Log     logrus.FieldLogger
}

// Collector measures targets, on request when the last sample is too old, and in the background for rates.
type Collector struct {
	cfg Config
	// detailed is the time of the last request for details, in Unix nanoseconds.
	detailed atomic.Int64

	mu sync.Mutex
	// probes holds no closed ones.
	probes map[probeKey]measurable
}

// probeKey identifies the subject of a probe: a container, or a part of a pod.
type probeKey struct{ kind, id string }

// The kinds of probes.
const (
	probeContainer = "container"
	probePod       = "pod"
	probeInfra     = "infra"
	probeNetwork   = "network"
)

// NewCollector returns a collector without probes.
func NewCollector(cfg Config) *Collector {
	return &Collector{cfg: cfg, probes: map[probeKey]measurable{}}
}

// Containers measures containers, by id. Those without a process are left out. It waits at most MeterPatience,
// and returns the last sample of one that is not measured by then.
func (c *Collector) Containers(ctx context.Context, targets []ContainerTarget, want Want) map[string]Container {
	out := make(map[string]Container, len(targets))
	probes := make([]*probe[Sample], len(targets))
	var all []measurable
	for i, t := range targets {
		if probes[i] = c.container(t); probes[i] != nil {
			all = append(all, probes[i])
		}
	}
	c.refresh(ctx, all, want)
	for i, t := range targets {
		if sample := probes[i].value(); sample != nil {
			out[t.ID] = Container{Sample: *sample, Writable: c.Writable(t.ID)}
		}
	}
	return out
}

// Pods measures pods, and the containers in them, by id. See Containers.
func (c *Collector) Pods(ctx context.Context, targets []PodTarget, want Want) map[string]Pod {
	pods := make([]podProbes, 0, len(targets))
	var all []measurable
	for _, t := range targets {
		probes := c.podProbes(t)
		pods = append(pods, probes)
		all = probes.appendTo(all)
	}
	c.refresh(ctx, all, want)
	out := make(map[string]Pod, len(pods))
	for _, p := range pods {
		out[p.target.ID] = p.usage(c)
	}
	return out
}

// Run measures all targets once per interval until ctx ends, and then closes the probes.
func (c *Collector) Run(ctx context.Context, targets func() ([]ContainerTarget, []PodTarget)) {
	ticker := time.NewTicker(c.cfg.Interval)
	defer ticker.Stop()
	defer c.Close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			c.Round(ctx, targets)
		}
	}
}

// Round measures all targets once, and closes the probes of all others.
func (c *Collector) Round(ctx context.Context, targets func() ([]ContainerTarget, []PodTarget)) {
	details := time.Since(time.Unix(0, c.detailed.Load())) < detailsAsked
	containers, pods := targets()
	keep := map[probeKey]bool{}
	var all []measurable
	for _, t := range containers {
		if p := c.container(t); p != nil {
			keep[probeKey{probeContainer, t.ID}] = true
			all = append(all, p)
		}
	}
	for _, t := range pods {
		for _, kind := range []string{probePod, probeInfra, probeNetwork} {
			keep[probeKey{kind, t.ID}] = true
		}
		all = c.podProbes(t).own(all)
	}
	c.prune(keep)
	// Not by refresh, which counts as a request for details.
	ctx, cancel := context.WithTimeout(ctx, FirstPatience)
	defer cancel()
	select {
	case <-measureAll(ctx, all, Want{Details: details}):
	case <-ctx.Done():
	}
}

// DropContainer closes the probe of a container that has exited.
func (c *Collector) DropContainer(id string) { c.drop(probeKey{probeContainer, id}) }

// DropPod closes the probes of a pod that stops: an open file keeps its network namespace alive.
func (c *Collector) DropPod(id string) {
	c.drop(probeKey{probePod, id}, probeKey{probeInfra, id}, probeKey{probeNetwork, id})
}

// Close closes all probes.
func (c *Collector) Close() { c.prune(nil) }

// probeOf finds a probe, or makes one unless make returns nil. Nothing is opened under the lock.
func probeOf[T any](c *Collector, key probeKey, make func() gauge[T]) *probe[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok := c.probes[key].(*probe[T]); ok {
		return p
	}
	g := make()
	if g == nil {
		return nil
	}
	report := c.report(key)
	p := newProbe(g, func(err error) time.Duration {
		switch {
		case errdefs.IsNotFound(err): // removed, or not there yet
			return 0
		case !errdefs.IsFailedPrecondition(err): // a pod without its own cgroup
			report(err)
		}
		return c.cfg.Interval
	})
	c.probes[key] = p
	return p
}

// report logs what cannot be measured.
func (c *Collector) report(key probeKey) func(error) {
	return func(err error) {
		c.cfg.Log.WithField(key.kind, key.id).WithError(err).Warn("failed to measure resource usage")
	}
}

// drop closes probes. They are not made again unless their targets say so.
func (c *Collector) drop(keys ...probeKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		if p := c.probes[key]; p != nil {
			p.close()
			delete(c.probes, key)
		}
	}
}

// prune drops all probes but those in keep.
func (c *Collector) prune(keep map[probeKey]bool) {
	c.mu.Lock()
	var drop []probeKey
	for key := range c.probes {
		if !keep[key] {
			drop = append(drop, key)
		}
	}
	c.mu.Unlock()
	c.drop(drop...)
}

// container returns the probe of a container, nil when it cannot be measured.
func (c *Collector) container(t ContainerTarget) *probe[Sample] {
	if c.cfg.Cgroups == nil || t.PID() == 0 { // its probe may still exist
		return nil
	}
	key := probeKey{probeContainer, t.ID}
	return probeOf(c, key, func() gauge[Sample] {
		pid := t.PID()
		if pid == 0 || t.OwnKernel && t.Meter == nil {
			return nil
		}
		open := func() (Reader, error) { return c.cfg.Cgroups.Of(pid, t.ID) }
		if t.OwnKernel {
			reader := &runtimeReader{meter: t.Meter, id: t.ID}
			open = func() (Reader, error) { return reader, nil }
		}
		return &cgroupGauge{
			interval: c.cfg.Interval, created: t.Created, pid: pid, open: open, failed: c.report(key), metered: t.OwnKernel,
		}
	})
}

// refresh measures the probes that are due. It waits a moment only for the slowest.
func (c *Collector) refresh(ctx context.Context, probes []measurable, want Want) {
	if want.Details {
		c.detailed.Store(time.Now().UnixNano())
	}
	probes = slices.DeleteFunc(probes, func(p measurable) bool { return !p.due(want) })
	if len(probes) == 0 {
		return
	}
	wait := Patience
	for _, p := range probes {
		wait = max(wait, p.patience())
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	select {
	case <-measureAll(ctx, probes, want):
	case <-ctx.Done():
	}
}

// measureAll closes the channel when all probes have measured or ctx is done. A stuck one keeps its goroutine until the
// kernel answers; the others continue, and it is not measured again before that.
func measureAll(ctx context.Context, probes []measurable, want Want) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		var workers errgroup.Group
		workers.SetLimit(parallel)
		for _, p := range probes {
			if ctx.Err() != nil {
				break
			}
			workers.Go(func() error {
				p.measure(ctx, want)
				return nil
			})
		}
		_ = workers.Wait() // they return no errors
	}()
	return done
}
