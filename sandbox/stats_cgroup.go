package sandbox

import (
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci/cgroups"
)

// Cgroups finds control groups.
type Cgroups interface {
	// Of returns the group that a process is in, up to the part that contains name.
	Of(pid int, name string) (Cgroup, error)
	// At returns the group of that path.
	At(path string) (Cgroup, error)
	// Device names a block device, "" when there is none.
	Device(major, minor uint64) string
}

// Cgroup is one control group; see cgroups.Group. All errors are errdefs.ErrNotFound when it is gone.
type Cgroup interface {
	Path() string
	Read() (cgroups.Usage, error)
	Details() (cgroups.Details, error)
	Limits() (cgroups.Limits, error)
	// Unified is the text of a file of cgroup v2, "" when there is none.
	Unified(name string) (string, error)
	Processes() ([]int, error)
	Update(*specs.LinuxResources) error
	// Only is true when no process is in the group itself, and own is true of all groups right below.
	Only(own func(child string) bool) (bool, error)
	Close()
}

// CgroupTree makes Cgroups out of the machine's.
func CgroupTree(t *cgroups.Tree) Cgroups { return cgroupTree{t} }

type cgroupTree struct{ *cgroups.Tree }

func (t cgroupTree) Of(pid int, name string) (Cgroup, error) { return orNil(t.Tree.Of(pid, name)) }

func (t cgroupTree) At(path string) (Cgroup, error) { return orNil(t.Tree.At(path)) }

func orNil(g *cgroups.Group, err error) (Cgroup, error) {
	if err != nil {
		return nil, err
	}
	return g, nil
}

// cgroupGauge measures one control group.
type cgroupGauge struct {
	interval time.Duration
	// born is when the group had used nothing yet, as well as is known.
	born time.Time
	// pid is the container's first process, 0 for a pod.
	pid  int
	open func() (Cgroup, error)
	// check is asked from time to time whether the group is still to be measured. It may be nil.
	check   func(Cgroup) error
	checked time.Time
	// failed is told of what could not be measured beside the usage.
	failed func(error)

	group Cgroup
	// base is the sample that the present rate is counted from, rate the last one that was worked out.
	base struct {
		at   time.Time
		used time.Duration
	}
	rate *uint64
}

func (g *cgroupGauge) due(last *CgroupUsage, want WantUsage) bool {
	return time.Since(last.Usage.At) >= freshness || want.Details && g.detailsDue(last)
}

func (g *cgroupGauge) detailsDue(last *CgroupUsage) bool {
	return last.Details == nil || time.Since(last.Details.At) >= g.interval
}

func (g *cgroupGauge) close() {
	if g.group != nil {
		g.group.Close()
		g.group = nil
	}
}

func (g *cgroupGauge) measure(last *CgroupUsage, want WantUsage) (*CgroupUsage, error) {
	next, err := g.sample(last, want)
	if err != nil {
		g.close()
		return nil, err
	}
	return next, nil
}

func (g *cgroupGauge) sample(last *CgroupUsage, want WantUsage) (*CgroupUsage, error) {
	var err error
	if g.group == nil {
		if g.group, err = g.open(); err != nil {
			return nil, err
		}
	}
	if g.check != nil && time.Since(g.checked) >= g.interval {
		if err := g.check(g.group); err != nil {
			return nil, err
		}
		g.checked = time.Now()
	}
	usage, err := g.group.Read()
	if err != nil {
		return nil, err
	}
	next := &CgroupUsage{Path: g.group.Path(), Usage: &usage, NanoCores: g.nanoCores(usage)}
	if last != nil {
		next.Details = last.Details
	}
	if want.Details && g.detailsDue(next) {
		details, err := g.group.Details()
		switch {
		case err == nil:
			next.Details = &UsageDetails{Details: details, OpenFiles: openFiles(g.pid, details.Processes)}
		case errdefs.IsNotFound(err):
			return nil, err
		default: // usage is worth having without
			g.failed(fmt.Errorf("details: %w", err))
		}
	}
	return next, nil
}

// nanoCores works out the rate since the sample before; nil while there is only one.
func (g *cgroupGauge) nanoCores(u cgroups.Usage) *uint64 {
	if u.CPU == nil {
		return nil
	}
	if g.base.at.IsZero() {
		if u.At.Sub(g.born) > 2*g.interval { // the average over a long life is no rate of this moment
			g.base.at, g.base.used = u.At, u.CPU.Total
			return nil
		}
		g.base.at = g.born
	}
	window := u.At.Sub(g.base.at)
	if window < freshness/2 && g.rate != nil || window <= 0 { // asked for details right after usage
		return g.rate
	}
	used := max(0, u.CPU.Total-g.base.used)
	g.rate = new(uint64(float64(used) / window.Seconds()))
	g.base.at, g.base.used = u.At, u.CPU.Total
	return g.rate
}
