package cgroups

import (
	"math"
	"time"
)

// Figures are what a sandbox with a kernel of its own says of a container in it, of which no group of the host tells.
type Figures struct {
	// Total, User and System are processor time in nanoseconds.
	Total, User, System uint64
	// Memory is all, Cache that of files, and Idle that of files that were not used lately, in bytes.
	Memory, Cache, Idle uint64
	Pids                uint64
}

// Told is the usage by such figures, which are not believed: a part is never larger than the whole. Limits are not
// among them.
func Told(f Figures) Usage {
	cache := min(f.Cache, f.Memory)
	return Usage{
		At:  time.Now(),
		CPU: &CPU{Total: nanoseconds(f.Total), User: nanoseconds(f.User), System: nanoseconds(f.System)},
		Memory: &Memory{
			Usage: f.Memory, WorkingSet: f.Memory - min(f.Idle, f.Memory),
			Cache: cache, RSS: f.Memory - cache, Limit: Unlimited,
		},
		Pids: &Pids{Current: f.Pids, Limit: Unlimited},
	}
}

func nanoseconds(n uint64) time.Duration { return time.Duration(min(n, math.MaxInt64)) }
