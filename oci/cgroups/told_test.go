package cgroups

import (
	"math"
	"testing"
	"time"
)

func TestTold(t *testing.T) {
	for name, tt := range map[string]struct {
		figures Figures
		cpu     CPU
		memory  Memory
		pids    uint64
	}{
		"nothing": {memory: Memory{Limit: Unlimited}},
		"usual": {
			figures: Figures{Total: 3e9, User: 2e9, System: 1e9, Memory: 1000, Cache: 300, Idle: 100, Pids: 7},
			cpu:     CPU{Total: 3 * time.Second, User: 2 * time.Second, System: time.Second},
			memory:  Memory{Usage: 1000, WorkingSet: 900, Cache: 300, RSS: 700, Limit: Unlimited},
			pids:    7,
		},
		"more files than memory": {
			figures: Figures{Memory: 10, Cache: 20, Idle: 30},
			memory:  Memory{Usage: 10, Cache: 10, Limit: Unlimited},
		},
		"more time than there was": {
			figures: Figures{Total: math.MaxUint64},
			cpu:     CPU{Total: math.MaxInt64},
			memory:  Memory{Limit: Unlimited},
		},
	} {
		u := Told(tt.figures)
		if *u.CPU != tt.cpu || *u.Memory != tt.memory || u.Pids.Current != tt.pids || u.Pids.Limit != Unlimited {
			t.Errorf("%s: %+v, %+v, %+v", name, *u.CPU, *u.Memory, *u.Pids)
		}
		if time.Since(u.At) > time.Minute {
			t.Errorf("%s: at %s", name, u.At)
		}
	}
}
