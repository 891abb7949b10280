package network

import (
	"fmt"

	"github.com/containernetworking/cni/pkg/invoke"

	"github.com/podd-project/podd/network/reference"
)

// Inspection describes the network that the next pod would get, read from files only.
type Inspection struct {
	// Network is the name of the network, "" if there is none.
	Network string
	// Problems are invalid files and missing plugins. If there are none, an empty Network means that no network is
	// configured yet.
	Problems []error
	// Masquerade is the type of the plugin that writes packet filter rules for each pod (ipMasq), "" if none does.
	Masquerade string
}

// Inspect reads the CNI configuration and looks for its plugins. It runs no plugin and changes nothing.
func Inspect(cfg Config) Inspection {
	list, _, broken, err := loadConf(cfg.ConfDir)
	var in Inspection
	for _, b := range broken {
		in.Problems = append(in.Problems, fmt.Errorf("%s: %w", b.path, b.err))
	}
	in.inspectTemplate(cfg.ConfTemplate)
	if err != nil {
		return in
	}
	in.Network = list.Name
	for _, p := range list.Plugins {
		if reference.IPMasq(p) {
			in.Masquerade = p.Network.Type
		}
	}
	c := &CNI{newExec: func(o execOptions) invoke.Exec { return &executor{execOptions: o} }}
	c.settings.Store(&cfg)
	if err := c.missingPlugin(list); err != nil {
		in.Problems = append(in.Problems, fmt.Errorf("network %s: %w", list.Name, err))
	}
	return in
}

// inspectTemplate fills in the template, for a node with one address family and for one with both: the kubelet sends
// the ranges only when the node has joined.
func (in *Inspection) inspectTemplate(path string) {
	if path == "" {
		return
	}
	for _, ranges := range []string{"192.0.2.0/24", "192.0.2.0/24,2001:db8::/64"} {
		data, err := parsePodCIDR(ranges)
		if err == nil {
			_, err = renderConf(path, data)
		}
		if err != nil {
			in.Problems = append(in.Problems, fmt.Errorf("conf_template %s with the pod CIDR %s: %w", path, ranges, err))
			return
		}
	}
}
