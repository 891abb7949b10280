package network

import (
	"fmt"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
)

// hostLocalProgram is the CNI project's host-local.
const hostLocalProgram = "ipam/host-local"

// genericPrograms are the plugins of the CNI project that read nothing of a pod but its container id, namespace, ports
// and limits (their sources, v1.0.0 to v1.9.1): what they do at ADD is the same for every pod without ports and limits.
var genericPrograms = []string{
	"main/bridge", "main/ptp", "main/ipvlan", "main/macvlan", hostLocalProgram,
	"meta/portmap", "meta/bandwidth", "meta/firewall",
}

// checkGeneric returns nil if the plugins of the network do the same for each pod without ports and limits.
func (c *CNI) checkGeneric(list *libcni.NetworkConfigList) error {
	for _, p := range list.Plugins {
		for capability, declared := range p.Network.Capabilities {
			if declared && capability != "portMappings" && capability != "bandwidth" {
				return fmt.Errorf("CNI network %s: plugin %.80q gets the %.80q of each pod",
					list.Name, p.Network.Type, capability)
			}
		}
		for _, name := range []string{p.Network.Type, p.Network.IPAM.Type} {
			if name == "" {
				continue
			}
			kind, err := c.pluginKind(name)
			if err != nil {
				return err
			}
			if !slices.Contains(genericPrograms, kind) {
				return fmt.Errorf("CNI network %s: plugin %.80q may do something else for each pod", list.Name, name)
			}
		}
	}
	return nil
}

// pluginKind returns which of the CNI project's plugins has the name here, such as main/bridge: "" if none has.
func (c *CNI) pluginKind(name string) (string, error) {
	path, err := c.newExec(execOptions{}).FindInPath(name, c.cfg().BinDirs)
	if err != nil {
		return "", err
	}
	kind, ok := strings.CutPrefix(c.idle.program(path), cniProject)
	if !ok {
		return "", nil
	}
	return kind, nil
}
