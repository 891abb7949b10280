package sandbox

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/sandbox/record"
)

const (
	// patience is how long those who ask wait for a probe that has a sample to show instead.
	patience = 100 * time.Millisecond
	// firstPatience is how long they wait for one that has none.
	firstPatience = time.Second
	// statsParallel is how many probes measure at once; those that are stuck do not count.
	statsParallel = 4
	// detailsAsked is how long details are collected after somebody has asked for them.
	detailsAsked = 5 * time.Minute
)

// collector measures what containers and pods use: in the background, so that rates can be told, and when somebody
// asks and the last sample is too old.
type collector struct {
	// detailed is when somebody last asked for details, in Unix nanoseconds.
	detailed atomic.Int64
	interval time.Duration
	cgroups  Cgroups // nil: nothing is measured
	log      logrus.FieldLogger
	// meter finds who measures a container that control groups tell nothing of; nil for the others.
	meter func(*Container) Meter

	mu sync.Mutex
	// probes are by what they measure. Closed ones are not in it.
	probes map[probeKey]measurable
}

// probeKey is what a probe measures: a container, or a part of a pod.
type probeKey struct{ kind, id string }

// The kinds of probes.
const (
	probeContainer = "container"
	probePod       = "pod"
	probeInfra     = "infra"
	probeNetwork   = "network"
)

func newCollector(cfg Config, deps Deps) *collector {
	return &collector{interval: cfg.StatsInterval, cgroups: deps.Cgroups, log: deps.Log, probes: map[probeKey]measurable{}}
}

// probeOf finds a probe, or makes it unless make returns nil. Nothing is opened under the lock.
func probeOf[T any](c *collector, key probeKey, make func() gauge[T]) *probe[T] {
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
		case errdefs.IsNotFound(err): // it is about to go, or to come
			return 0
		case !errdefs.IsFailedPrecondition(err): // that is a pod without a group of its own
			report(err)
		}
		return c.interval
	})
	c.probes[key] = p
	return p
}

// report logs what cannot be measured.
func (c *collector) report(key probeKey) func(error) {
	return func(err error) {
		c.log.WithField(key.kind, key.id).WithError(err).Warn("resource usage cannot be measured")
	}
}

// drop ends the measuring of something, and keeps it from being measured again unless make says so.
func (c *collector) drop(keys ...probeKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		if p := c.probes[key]; p != nil {
			p.close()
			delete(c.probes, key)
		}
	}
}

// dropPod gives back what is kept open of a pod that stops: an open file keeps its network namespace alive.
func (c *collector) dropPod(p *Pod) {
	c.drop(probeKey{probePod, p.ID}, probeKey{probeInfra, p.ID}, probeKey{probeNetwork, p.ID})
}

// container returns the probe of a container, nil when nothing can be measured of it.
func (c *collector) container(of *Container) *probe[CgroupUsage] {
	alive := func() (pid int) {
		if s := of.Status(); s.State == record.ContainerCreated || s.State == record.ContainerRunning {
			return s.Process.Pid
		}
		return 0
	}
	if c.cgroups == nil || alive() == 0 { // its probe may be there for a moment still
		return nil
	}
	return probeOf(c, probeKey{probeContainer, of.ID}, func() gauge[CgroupUsage] {
		pid := alive()
		if pid == 0 {
			return nil
		}
		open := func() (Cgroup, error) { return c.cgroups.Of(pid, of.ID) }
		if of.pod.OwnKernel {
			m := c.meter(of)
			if m == nil {
				return nil
			}
			told := &metered{meter: m, of: of}
			open = func() (Cgroup, error) { return told, nil }
		}
		return &cgroupGauge{interval: c.interval, born: of.CreatedAt, pid: pid, open: open, failed: c.report(probeKey{probeContainer, of.ID})}
	})
}

// refresh has every probe measured that is due. It waits for the slowest a moment only.
func (c *collector) refresh(ctx context.Context, probes []measurable, want WantUsage) {
	if want.Details {
		c.detailed.Store(time.Now().UnixNano())
	}
	probes = slices.DeleteFunc(probes, func(p measurable) bool { return !p.due(want) })
	if len(probes) == 0 {
		return
	}
	wait := patience
	if slices.ContainsFunc(probes, func(p measurable) bool { return !p.known() }) {
		wait = firstPatience
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	select {
	case <-measureAll(ctx, probes, want):
	case <-ctx.Done():
	}
}

// measureAll closes the channel when all probes have measured. One that is stuck keeps its goroutine until the kernel
// answers; the others go on, and nobody measures it again meanwhile.
func measureAll(ctx context.Context, probes []measurable, want WantUsage) <-chan struct{} {
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(statsParallel, len(probes)) {
		workers.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(probes) {
					return
				}
				probes[i].measure(ctx, want)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		workers.Wait()
		close(done)
	}()
	return done
}

// collect measures everything from time to time until ctx ends, and then gives back what is kept open.
func (e *Engine) collect(ctx context.Context) {
	ticker := time.NewTicker(e.stats.interval)
	defer ticker.Stop()
	defer e.stats.prune(nil)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			e.collectOnce(ctx)
		}
	}
}

func (e *Engine) collectOnce(ctx context.Context) {
	asked := time.Since(time.Unix(0, e.stats.detailed.Load())) < detailsAsked
	alive := map[probeKey]bool{}
	var all []measurable
	for _, c := range e.store.containerList(nil) {
		if p := e.stats.container(c); p != nil {
			alive[probeKey{probeContainer, c.ID}] = true
			all = append(all, p)
		}
	}
	for _, p := range e.store.podList() {
		if p.Status().State != record.PodReady {
			continue
		}
		for _, kind := range []string{probePod, probeInfra, probeNetwork} {
			alive[probeKey{kind, p.ID}] = true
		}
		all = e.podProbes(p, nil).own(all)
	}
	e.stats.prune(alive)
	// Not by refresh: that would count as being asked.
	ctx, cancel := context.WithTimeout(ctx, firstPatience)
	defer cancel()
	select {
	case <-measureAll(ctx, all, WantUsage{Details: asked}):
	case <-ctx.Done():
	}
}

// prune drops the probes that are not alive.
func (c *collector) prune(alive map[probeKey]bool) {
	c.mu.Lock()
	var gone []probeKey
	for key := range c.probes {
		if !alive[key] {
			gone = append(gone, key)
		}
	}
	c.mu.Unlock()
	c.drop(gone...)
}
