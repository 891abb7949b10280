package cgroups

import (
	"math"
	"time"
)

// SandboxStats are the statistics that a sandbox with its own kernel reports for one of its containers. No cgroup of
// the host accounts for such a container.
type SandboxStats struct {
	// Total, User and System are CPU time in nanoseconds.
	Total, User, System uint64
	// Memory is the total, Cache the part of files, Idle the part of inactive files, in bytes.
	Memory, Cache, Idle uint64
	Pids                uint64
}

// FromSandbox converts the stats of a sandbox, which are not trusted: a part is never larger than the total. Sandboxes
// report no limits.
func FromSandbox(s SandboxStats) Usage {
	cache := min(s.Cache, s.Memory)
	return Usage{
		At:  time.Now(),
		CPU: &CPU{Total: nanoseconds(s.Total), User: nanoseconds(s.User), System: nanoseconds(s.System)},
		Memory: &Memory{
			Usage: s.Memory, WorkingSet: s.Memory - min(s.Idle, s.Memory),
			Cache: cache, RSS: s.Memory - cache, Limit: Unlimited,
		},
		Pids: &Pids{Current: s.Pids, Limit: Unlimited},
	}
}

func nanoseconds(n uint64) time.Duration { return time.Duration(min(n, math.MaxInt64)) }
