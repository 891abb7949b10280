package network

import (
	"fmt"

	"github.com/containernetworking/cni/pkg/invoke"
)

// Inspection is what the next pod's network would be, as far as files tell.
type Inspection struct {
	// Network is the name of the network, "" if there is none.
	Network string
	// Problems are files that cannot be used, and plugins that are missing. Without any, an empty Network means that no
	// network is configured yet.
	Problems []error
}

// Inspect reads the CNI configuration and looks for its plugins. It runs no plugin and changes nothing.
func Inspect(cfg Config) Inspection {
	list, broken, err := loadConf(cfg.ConfDir)
	var in Inspection
	for _, b := range broken {
		in.Problems = append(in.Problems, fmt.Errorf("%s: %w", b.path, b.err))
	}
	if err != nil {
		return in
	}
	in.Network = list.Name
	c := &CNI{newExec: func(o execOptions) invoke.Exec { return &executor{execOptions: o} }}
	c.settings.Store(&cfg)
	if err := c.missingPlugin(list); err != nil {
		in.Problems = append(in.Problems, fmt.Errorf("network %s: %w", list.Name, err))
	}
	return in
}
