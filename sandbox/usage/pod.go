package usage

import (
	"os"

	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/sandbox/namespaces"
)

// podProbes are the probes of one pod; those that do not apply to it are nil.
type podProbes struct {
	target     PodTarget
	group      *probe[Sample]
	infra      *probe[Sample]
	network    *probe[Network]
	containers []*probe[Sample]
}

func (c *Collector) podProbes(t PodTarget) podProbes {
	probes := podProbes{target: t}
	for _, container := range t.Containers {
		probes.containers = append(probes.containers, c.container(container))
	}
	probes.group = probeOf(c, probeKey{probePod, t.ID}, func() gauge[Sample] {
		if c.cfg.Cgroups == nil || !t.Ready() || t.Cgroup == "" {
			return nil
		}
		var group Cgroup
		g := c.podGauge(t, probePod)
		g.open = func() (_ Reader, err error) { group, err = c.cfg.Cgroups.At(t.Cgroup); return group, err }
		g.check = func() error { return t.CheckCgroup(group) }
		return g
	})
	probes.infra = probeOf(c, probeKey{probeInfra, t.ID}, func() gauge[Sample] {
		if c.cfg.Cgroups == nil || !t.Ready() || t.InfraPID == 0 {
			return nil
		}
		g := c.podGauge(t, probeInfra)
		g.pid = t.InfraPID
		g.open = func() (Reader, error) { return c.cfg.Cgroups.Of(t.InfraPID, t.ID) }
		return g
	})
	probes.network = probeOf(c, probeKey{probeNetwork, t.ID}, func() gauge[Network] {
		if t.Netns == "" || !t.Ready() {
			return nil
		}
		return &networkGauge{open: func() (*os.File, error) { return namespaces.OpenNetDev(t.Netns) }}
	})
	return probes
}

func (c *Collector) podGauge(t PodTarget, kind string) *cgroupGauge {
	return &cgroupGauge{interval: c.cfg.Interval, created: t.Created, failed: c.report(probeKey{kind, t.ID})}
}

// own appends the probes of the pod itself.
func (p podProbes) own(all []measurable) []measurable {
	if p.group != nil {
		all = append(all, p.group)
	}
	if p.infra != nil {
		all = append(all, p.infra)
	}
	if p.network != nil {
		all = append(all, p.network)
	}
	return all
}

func (p podProbes) appendTo(all []measurable) []measurable {
	for _, c := range p.containers {
		if c != nil {
			all = append(all, c)
		}
	}
	return p.own(all)
}

// usage combines the last samples.
func (p podProbes) usage(c *Collector) Pod {
	u := Pod{Network: p.network.value(), Containers: map[string]Container{}}
	var parts []*Sample
	for i, t := range p.target.Containers {
		if sample := p.containers[i].value(); sample != nil {
			u.Containers[t.ID] = Container{Sample: *sample, Writable: c.Writable(t.ID)}
			parts = append(parts, sample)
		}
	}
	if own := p.group.value(); own != nil {
		u.Sample = *own
		return u
	}
	if infra := p.infra.value(); infra != nil {
		if p.target.OwnKernel {
			parts = nil // its group holds the sandbox with all containers in it
		}
		parts = append(parts, infra)
	}
	u.Sample = sumUsage(parts)
	return u
}

// sumUsage adds times, bytes, faults and tasks. Limits and pressure cannot be added.
func sumUsage(parts []*Sample) Sample {
	if len(parts) == 0 {
		return Sample{}
	}
	var total cgroups.Usage
	var rate *uint64
	for _, p := range parts {
		addUsage(&total, p.Usage)
		if p.NanoCores != nil {
			if rate == nil {
				rate = new(uint64)
			}
			*rate += *p.NanoCores
		}
	}
	return Sample{Usage: &total, NanoCores: rate}
}

func addUsage(total, u *cgroups.Usage) {
	if total.At.IsZero() || u.At.Before(total.At) {
		total.At = u.At // as old as its oldest part
	}
	if u.CPU != nil {
		if total.CPU == nil {
			total.CPU = &cgroups.CPU{}
		}
		total.CPU.Add(*u.CPU)
	}
	if u.Memory != nil {
		if total.Memory == nil {
			total.Memory = &cgroups.Memory{}
		}
		total.Memory.Add(*u.Memory)
		total.Memory.Limit = cgroups.Unlimited
	}
	if u.Swap != nil {
		if total.Swap == nil {
			total.Swap = &cgroups.Swap{Limit: cgroups.Unlimited}
		}
		total.Swap.Usage += u.Swap.Usage
	}
	if u.Pids != nil {
		if total.Pids == nil {
			total.Pids = &cgroups.Pids{Limit: cgroups.Unlimited}
		}
		total.Pids.Current += u.Pids.Current
	}
}
