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

// poolWaits reports whether the pool of networks waits for an operation in progress.
func (n *node) poolWaits() bool { return slices.ContainsFunc(n.engine.Operations(), beforePool) }

// beforePool reports whether an operation starts pods or containers, or detaches a network: CNI and the kernel's lock
// of the network are for it first.
func beforePool(o operation.Operation) bool {
	return slices.Contains([]string{
		operation.RunPod, operation.RestorePod, operation.CreateContainer, operation.StartContainer, operation.StopPod,
	}, o.Verb)
}
