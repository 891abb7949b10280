package sandbox

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/sandbox/record"
)

// Meter is a Runtime that can tell what a container uses when the host's control groups do not, because the container
// runs under a kernel of its own. errdefs.ErrNotFound when it does not run.
type Meter interface {
	Usage(ctx context.Context, id string) (cgroups.Usage, error)
}

// meterTimeout bounds one question; a probe that takes longer than a moment is not waited for anyway.
const meterTimeout = 10 * time.Second

// metered is a container's usage as its runtime tells it, in the form of a control group. It is for one reader at a time.
type metered struct {
	meter Meter
	of    *Container
	// last is the processor time as it was told last, used as it is shown.
	last, used cgroups.CPU
}

// meter is how a container is measured whose pod has a kernel of its own, nil when it is not so, or cannot be.
func (e *Engine) meter(c *Container) Meter {
	if !c.pod.OwnKernel {
		return nil
	}
	rt, err := e.runtime(c.pod.Handler())
	if err != nil {
		return nil
	}
	m, _ := rt.(Meter)
	return m
}

// Read asks the runtime, once the container was started: what runtimes answer before that they do not agree on, and what is
// no ErrNotFound would keep the container from being measured for a while.
func (m *metered) Read() (cgroups.Usage, error) {
	if s := m.of.Status().State; s != record.ContainerRunning {
		return cgroups.Usage{}, fmt.Errorf("container %s is %s: %w", m.of.ID, s, errdefs.ErrNotFound)
	}
	ctx, cancel := context.WithTimeout(context.Background(), meterTimeout)
	defer cancel()
	u, err := m.meter.Usage(ctx, m.of.ID)
	if err == nil {
		m.add(u.CPU)
	}
	return u, err
}

// add makes the processor time a counter that never falls: what falls is a counter that began again to whoever makes a rate of
// it. runsc divides all that its sandbox has used among the containers that run, by what each has had so far, anew each time
// that it is asked. So the share of one falls when another comes or works; that is left out, and what is added to it later
// counts from there. When another one ends, its share goes to the others: that is told as use.
func (m *metered) add(now *cgroups.CPU) {
	if now == nil {
		return
	}
	told := *now
	now.Total = m.used.Total + max(0, told.Total-m.last.Total)
	now.User = m.used.User + max(0, told.User-m.last.User)
	now.System = m.used.System + max(0, told.System-m.last.System)
	m.last, m.used = told, *now
}

// Path is not there: what the container uses stands in no group of its own.
func (m *metered) Path() string { return "" }

// Details are not known.
func (m *metered) Details() (cgroups.Details, error) { return cgroups.Details{At: time.Now()}, nil }

// Limits are not known.
func (m *metered) Limits() (cgroups.Limits, error) { return cgroups.Limits{}, m.unknown("limits") }

// Unified is of no file.
func (m *metered) Unified(string) (string, error) { return "", nil }

// Processes are none on the host.
func (m *metered) Processes() ([]int, error) { return nil, nil }

// Update is the runtime's business.
func (m *metered) Update(*specs.LinuxResources) error { return m.unknown("update") }

// Only is never asked.
func (m *metered) Only(func(string) bool) (bool, error) { return false, m.unknown("groups") }

// Close has nothing to give back.
func (m *metered) Close() {}

func (m *metered) unknown(what string) error {
	return fmt.Errorf("%w: %s of a container under a kernel of its own", errdefs.ErrNotImplemented, what)
}
