package sandbox

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci/cgroups"
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
	// used is the most processor time that was told so far.
	used cgroups.CPU
}

// meter is how a container is measured whose pod has a kernel of its own, nil when it is not so, or cannot be.
func (e *Engine) meter(c *Container) Meter {
	if !c.pod.OwnKernel {
		return nil
	}
	rt, err := e.runtime(c.pod.runtime())
	if err != nil {
		return nil
	}
	m, _ := rt.(Meter)
	return m
}

// Read asks the runtime, once the container was started: what runtimes answer before that they do not agree on, and what is
// no ErrNotFound would keep the container from being measured for a while.
func (m *metered) Read() (cgroups.Usage, error) {
	if s := m.of.Status().State; s != ContainerRunning {
		return cgroups.Usage{}, fmt.Errorf("container %s is %s: %w", m.of.ID, s, errdefs.ErrNotFound)
	}
	ctx, cancel := context.WithTimeout(context.Background(), meterTimeout)
	defer cancel()
	u, err := m.meter.Usage(ctx, m.of.ID)
	if err == nil {
		m.hold(u.CPU)
	}
	return u, err
}

// hold keeps the processor time from falling. runsc divides what its sandbox has used among the containers anew each time
// that it is asked, by what each does then; whoever makes a rate of a counter that falls takes it for one that began again.
func (m *metered) hold(now *cgroups.CPU) {
	if now == nil {
		return
	}
	now.Total, now.User, now.System = max(now.Total, m.used.Total), max(now.User, m.used.User), max(now.System, m.used.System)
	m.used = *now
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
