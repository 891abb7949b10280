package cgroups

import (
	"math"
	"testing"
	"time"
)

func TestFromSandbox(t *testing.T) {
	for name, tt := range map[string]struct {
		stats  SandboxStats
		cpu    CPU
		memory Memory
		pids   uint64
	}{
		"nothing": {memory: Memory{Limit: Unlimited}},
		"usual": {
			stats:  SandboxStats{Total: 3e9, User: 2e9, System: 1e9, Memory: 1000, Cache: 300, Idle: 100, Pids: 7},
			cpu:    CPU{Total: 3 * time.Second, User: 2 * time.Second, System: time.Second},
			memory: Memory{Usage: 1000, WorkingSet: 900, Cache: 300, RSS: 700, Limit: Unlimited},
			pids:   7,
		},
		"more cache than memory": {
			stats:  SandboxStats{Memory: 10, Cache: 20, Idle: 30},
			memory: Memory{Usage: 10, Cache: 10, Limit: Unlimited},
		},
		"CPU time above the maximum": {
			stats:  SandboxStats{Total: math.MaxUint64},
			cpu:    CPU{Total: math.MaxInt64},
			memory: Memory{Limit: Unlimited},
		},
	} {
		u := FromSandbox(tt.stats)
		if *u.CPU != tt.cpu || *u.Memory != tt.memory || u.Pids.Current != tt.pids || u.Pids.Limit != Unlimited {
			t.Errorf(
				"%s: usage = %+v, %+v, %+v, want %+v, %+v, %d pids", name, *u.CPU, *u.Memory, *u.Pids, tt.cpu, tt.memory, tt.pids,
			)
		}
		if time.Since(u.At) > time.Minute {
			t.Errorf("%s: At = %s, want now", name, u.At)
		}
	}
}
