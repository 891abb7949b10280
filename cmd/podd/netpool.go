package main

import (
	"slices"

	"github.com/podd-project/podd/sandbox/netpool"
	"github.com/podd-project/podd/sandbox/operation"
)

// poolSettings are the settings of the pool of networks.
func (c *Config) poolSettings() netpool.Settings {
	return netpool.Settings{Size: c.Network.PoolSize, Sysctls: c.Runtime.DefaultSysctls}
}

// poolWaits reports whether pods or containers are being started, or networks detached: the pool of networks waits for
// that.
func (n *node) poolWaits() bool {
	first := []string{
		operation.RunPod, operation.RestorePod, operation.CreateContainer, operation.StartContainer, operation.StopPod,
	}
	return slices.ContainsFunc(n.engine.Operations(), func(o operation.Operation) bool {
		return slices.Contains(first, o.Verb)
	})
}
