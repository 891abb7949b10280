package sandbox

import (
	"fmt"
	"path"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/sandbox/record"
)

// podProbes are the probes of one pod; those that make no sense for it are nil.
type podProbes struct {
	pod        *Pod
	group      *probe[CgroupUsage]
	infra      *probe[CgroupUsage]
	network    *probe[NetworkUsage]
	containers []*Container
	probes     []*probe[CgroupUsage] // of containers
}

func (e *Engine) podProbes(p *Pod, containers []*Container) podProbes {
	probes := podProbes{pod: p, containers: containers}
	for _, c := range probes.containers {
		probes.probes = append(probes.probes, e.stats.container(c))
	}
	ready := func() bool { return p.Status().State == record.PodReady }
	probes.group = probeOf(e.stats, probeKey{probePod, p.ID}, func() gauge[CgroupUsage] {
		if e.Cgroups == nil || !ready() || e.podCgroupPath(p) == "" {
			return nil
		}
		return &cgroupGauge{
			interval: e.stats.interval, born: p.CreatedAt, failed: e.stats.report(probeKey{probePod, p.ID}),
			open:  func() (Cgroup, error) { return e.Cgroups.At(e.podCgroupPath(p)) },
			check: func(g Cgroup) error { return e.checkOwn(p, g) },
		}
	})
	probes.infra = probeOf(e.stats, probeKey{probeInfra, p.ID}, func() gauge[CgroupUsage] {
		pid := p.Status().Infra.Pid
		if e.Cgroups == nil || !ready() || pid == 0 {
			return nil
		}
		open := func() (Cgroup, error) { return e.Cgroups.Of(pid, p.ID) }
		return &cgroupGauge{interval: e.stats.interval, born: p.CreatedAt, pid: pid, open: open, failed: e.stats.report(probeKey{probeInfra, p.ID})}
	})
	probes.network = probeOf(e.stats, probeKey{probeNetwork, p.ID}, func() gauge[NetworkUsage] {
		if p.Netns == "" || !ready() {
			return nil
		}
		return &networkGauge{open: e.openNetDev(p.Netns)}
	})
	return probes
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
	for _, c := range p.probes {
		if c != nil {
			all = append(all, c)
		}
	}
	return p.own(all)
}

// usage puts the last samples together.
func (p podProbes) usage(e *Engine) PodUsage {
	u := PodUsage{Network: p.network.value(), Containers: map[string]ContainerUsage{}}
	var parts []*CgroupUsage
	for i, c := range p.containers {
		if sample := p.probes[i].value(); sample != nil {
			u.Containers[c.ID] = ContainerUsage{CgroupUsage: *sample, Writable: e.Writable(c.ID)}
			parts = append(parts, sample)
		}
	}
	if own := p.group.value(); own != nil {
		u.CgroupUsage = *own
		return u
	}
	if infra := p.infra.value(); infra != nil {
		if p.pod.OwnKernel {
			parts = nil // its group holds the sandbox with all containers in it
		}
		parts = append(parts, infra)
	}
	u.CgroupUsage = sumUsage(parts)
	return u
}

// sumUsage adds up what can be added: times, bytes, faults and tasks. Limits and pressure cannot.
func sumUsage(parts []*CgroupUsage) CgroupUsage {
	if len(parts) == 0 {
		return CgroupUsage{}
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
	return CgroupUsage{Usage: &total, NanoCores: rate}
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

// podCgroupPath is the group that the kubelet says is the pod's, "" when it says nothing.
func (e *Engine) podCgroupPath(p *Pod) string {
	parent := p.Config.GetLinux().GetCgroupParent()
	switch {
	case parent == "":
		return ""
	case e.cfg.SystemdCgroup:
		return cgroups.SlicePath(parent)
	}
	return path.Join("/", parent)
}

// checkOwn refuses a cgroup_parent that is more than the pod's: crictl and critest put all pods into one, such as
// system.slice. The kubelet makes one for each pod and names it by the pod's uid; any other is the pod's own as
// long as nothing else is in it.
func (e *Engine) checkOwn(p *Pod, g Cgroup) error {
	if named(p, e.podCgroupPath(p)) {
		return nil
	}
	ids := []string{p.ID}
	for _, c := range e.store.containerList(p) {
		ids = append(ids, c.ID)
	}
	only, err := g.Only(func(child string) bool {
		for _, id := range ids {
			if strings.Contains(child, id) {
				return true
			}
		}
		return false
	})
	if err == nil && !only {
		err = fmt.Errorf("%w: cgroup %s holds more than pod sandbox %s", errdefs.ErrFailedPrecondition, g.Path(), p.ID)
	}
	return err
}

// named tells whether a cgroup is named by p's uid, as the kubelet does it: then it is p's alone.
func named(p *Pod, cgroup string) bool {
	uid, name := p.Config.GetMetadata().GetUid(), path.Base(cgroup)
	return len(uid) >= minUID && (strings.Contains(name, uid) || strings.Contains(name, strings.ReplaceAll(uid, "-", "_")))
}

// minUID is how long a pod's uid must be to tell anything when it is found in a name.
const minUID = 8
