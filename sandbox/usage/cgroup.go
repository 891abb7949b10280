package usage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci/cgroups"
)

// Cgroups finds cgroups.
type Cgroups interface {
	// Of returns the cgroup that a process is in, up to the path element that contains name.
	Of(pid int, name string) (Cgroup, error)
	// At returns the cgroup of that path.
	At(path string) (Cgroup, error)
	// Device returns the name of a block device, "" when there is none.
	Device(major, minor uint64) string
}

// Reader reads the usage of one cgroup, or of what takes its place. All errors are errdefs.ErrNotFound when it is gone.
type Reader interface {
	// Path is empty for a container without its own cgroup.
	Path() string
	Read() (cgroups.Usage, error)
	Details() (cgroups.Details, error)
	Close()
}

// Cgroup is one cgroup; see cgroups.Group and Reader.
type Cgroup interface {
	Reader
	Limits() (cgroups.Limits, error)
	// Unified returns the text of a file of cgroup v2, "" when there is none.
	Unified(name string) (string, error)
	Processes() ([]int, error)
	Update(*specs.LinuxResources) error
	// Only reports whether no process is in the cgroup itself and own is true for each of its children.
	Only(own func(child string) bool) (bool, error)
}

// CgroupTree returns the cgroups of the machine.
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

// cgroupGauge measures one cgroup.
type cgroupGauge struct {
	interval time.Duration
	// created is when the usage was 0, as well as that is known.
	created time.Time
	// pid is the container's first process, 0 for a pod.
	pid  int
	open func() (Reader, error)
	// check, if set, is called each interval to see whether the cgroup is still to be measured.
	check   func() error
	checked time.Time
	// failed receives the errors of Details, which do not fail the sample.
	failed func(error)
	// metered is true if a runtime is asked.
	metered bool

	group Reader
	// base is the sample that the present rate is computed from, rate the last one.
	base struct {
		at   time.Time
		used time.Duration
	}
	rate *uint64
}

func (g *cgroupGauge) due(last *Sample, want Want) bool {
	return time.Since(last.Usage.At) >= Freshness || want.Details && g.detailsDue(last, want)
}

func (g *cgroupGauge) detailsDue(last *Sample, want Want) bool {
	oldest := g.interval
	if want.Fresh {
		oldest = Freshness
	}
	return last.Details == nil || time.Since(last.Details.At) >= oldest
}

func (g *cgroupGauge) patience() time.Duration {
	if g.metered {
		return MeterPatience
	}
	return FirstPatience
}

func (g *cgroupGauge) close() {
	if g.group != nil {
		g.group.Close()
		g.group = nil
	}
}

// measure keeps the last sample while a runtime does not answer: the container runs.
func (g *cgroupGauge) measure(last *Sample, want Want) (*Sample, error) {
	next, err := g.sample(last, want)
	if err == nil {
		return next, nil
	}
	g.close()
	if errors.Is(err, context.DeadlineExceeded) {
		return last, err
	}
	return nil, err
}

func (g *cgroupGauge) sample(last *Sample, want Want) (*Sample, error) {
	var err error
	if g.group == nil {
		if g.group, err = g.open(); err != nil {
			return nil, err
		}
	}
	if g.check != nil && time.Since(g.checked) >= g.interval {
		if err := g.check(); err != nil {
			return nil, err
		}
		g.checked = time.Now()
	}
	usage, err := g.group.Read()
	if err != nil {
		return nil, err
	}
	next := &Sample{Path: g.group.Path(), Usage: &usage, NanoCores: g.nanoCores(usage)}
	if last != nil {
		next.Details = last.Details
	}
	if want.Details && g.detailsDue(next, want) {
		details, err := g.group.Details()
		switch {
		case err == nil:
			next.Details = &Details{Details: details, OpenFiles: openFiles(g.pid, details.Processes)}
		case errdefs.IsNotFound(err):
			return nil, err
		default:
			g.failed(fmt.Errorf("details: %w", err))
		}
	}
	return next, nil
}

// nanoCores computes the rate since the previous sample; nil while there is only one.
func (g *cgroupGauge) nanoCores(u cgroups.Usage) *uint64 {
	if u.CPU == nil {
		return nil
	}
	if g.base.at.IsZero() {
		if u.At.Sub(g.created) > 2*g.interval { // the average over a long life is not a current rate
			g.base.at, g.base.used = u.At, u.CPU.Total
			return nil
		}
		g.base.at = g.created
	}
	window := u.At.Sub(g.base.at)
	if window < Freshness/2 && g.rate != nil || window <= 0 { // asked for details right after usage
		return g.rate
	}
	used := max(0, u.CPU.Total-g.base.used)
	g.rate = new(uint64(float64(used) / window.Seconds()))
	g.base.at, g.base.used = u.At, u.CPU.Total
	return g.rate
}
