package admin

import (
	"context"
	"net/http"
	"time"
)

// PodUsage is what one pod that is ready uses, for GET /usage.
type PodUsage struct {
	ID string `json:"id"`
	// Name is namespace/name.
	Name string `json:"name"`
	Resources
	// Containers are those that have not exited.
	Containers []ContainerUsage `json:"containers"`
}

// ContainerUsage is what one container uses.
type ContainerUsage struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Resources
}

// Resources are the use of a cgroup. Unknown values are left out.
type Resources struct {
	// CPU is the CPU time used per second, in nanoseconds, on average since the daemon measured it before.
	CPU *uint64 `json:"cpu_nanocores,omitempty"`
	// Memory is the working set in bytes: memory charged to the cgroup, without inactive file cache.
	Memory *uint64 `json:"memory_bytes,omitempty"`
	// IO is left out if the kernel does not count it, and for a pod without its own cgroup.
	IO *IO `json:"io,omitempty"`
}

// IO are the bytes that have been read from and written to block devices since the cgroup was created.
type IO struct {
	At         time.Time `json:"at"`
	ReadBytes  uint64    `json:"read_bytes"`
	WriteBytes uint64    `json:"write_bytes"`
}

func (rt router) usage(n Node) {
	rt.answer(http.MethodGet, "/usage", timeout, func(ctx context.Context, r *http.Request) (any, error) {
		limit, err := intParam(r, "limit", defaultLimit, MaxLimit)
		if err != nil {
			return nil, err
		}
		return first(n.Usage(ctx), limit), nil
	})
}
