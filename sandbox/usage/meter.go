package usage

import (
	"context"
	"time"

	"github.com/podd-project/podd/oci/cgroups"
)

// Meter reports the usage of a container that the host's cgroups do not measure, because it has its own kernel.
type Meter interface {
	// Usage returns errdefs.ErrNotFound when the container does not run.
	Usage(ctx context.Context, id string) (cgroups.Usage, error)
}

// meterTimeout bounds one call; callers do not wait that long for a probe.
const meterTimeout = 10 * time.Second

// runtimeReader is a container's usage as its runtime reports it. It is for one caller at a time.
type runtimeReader struct {
	meter Meter
	id    string
	// reported is the last CPU time from the runtime, total the last one returned.
	reported, total cgroups.CPU
}

// Path returns "": the container does not have its own cgroup.
func (r *runtimeReader) Path() string { return "" }

// Read calls the runtime.
func (r *runtimeReader) Read() (cgroups.Usage, error) {
	ctx, cancel := context.WithTimeout(context.Background(), meterTimeout)
	defer cancel()
	u, err := r.meter.Usage(ctx, r.id)
	if err == nil {
		r.add(u.CPU)
	}
	return u, err
}

// add makes the CPU time a counter that never decreases: consumers treat a decrease as a counter reset. runsc divides
// what its sandbox has used among the running containers, by the share that each has used so far, at each call. So the
// value of one container decreases when another starts or works; the decrease is dropped, and later increases count
// from there. When a container ends, its share goes to the others, where it is reported as usage.
func (r *runtimeReader) add(now *cgroups.CPU) {
	if now == nil {
		return
	}
	reported := *now
	now.Total = r.total.Total + max(0, reported.Total-r.reported.Total)
	now.User = r.total.User + max(0, reported.User-r.reported.User)
	now.System = r.total.System + max(0, reported.System-r.reported.System)
	r.reported, r.total = reported, *now
}

// Details returns no values: the runtime reports none.
func (r *runtimeReader) Details() (cgroups.Details, error) {
	return cgroups.Details{At: time.Now()}, nil
}

// Close does nothing: the reader holds nothing open.
func (r *runtimeReader) Close() {}
