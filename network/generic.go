package network

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// hostLocalProgram is the CNI project's host-local.
const hostLocalProgram = "ipam/host-local"

// genericPrograms are the plugins of the CNI project that read nothing of a pod but its container id, namespace, ports
// and limits (their sources, v1.0.0 to v1.9.1): what they do at ADD is the same for every pod without ports and limits.
var genericPrograms = []string{
	"main/bridge", "main/ptp", "main/ipvlan", "main/macvlan", hostLocalProgram,
	"meta/portmap", "meta/bandwidth", "meta/firewall",
}

// maxInterfaces bounds the interfaces of a result that State looks for.
const maxInterfaces = 64

// Generic returns nil if the plugins of the node's network do the same for each pod without ports and limits, so that
// an attachment can be made before it is known for which pod. Otherwise the error names what depends on the pod, or it
// is errdefs.ErrUnavailable for lack of a usable configuration. It runs no plugin.
func (c *CNI) Generic() error {
	_, err := c.genericConf()
	return err
}

// genericConf returns the configuration that the next pod gets, if it is generic.
func (c *CNI) genericConf() (*libcni.NetworkConfigList, error) {
	list, _, err := loadConf(c.cfg().ConfDir)
	if err != nil {
		return nil, err
	}
	return list, c.checkGeneric(list)
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

// State describes the attachment made for an id: two equal answers mean that it is as it was. The error is why it can
// not be given to a pod: the network is not generic, its configuration is another one now, or the namespace or an
// interface is gone. It runs no plugin.
func (c *CNI) State(podID string) (string, error) {
	if err := checkPodID(podID); err != nil {
		return "", err
	}
	list, err := c.genericConf()
	if err != nil {
		return "", err
	}
	r, err := c.readRecord(podID)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("network attachment %s: %w", podID, err)
	}
	if err != nil {
		return "", err
	}
	if !bytes.Equal(r.list.Bytes, list.Bytes) {
		return "", fmt.Errorf("network attachment %s: the configuration of the network has changed", podID)
	}
	return r.state()
}

// state describes the namespace and the interfaces of the result. The node's ones have to be in the same bridge: when
// that was deleted, ADD would make it again, but a pod that is attached already has no network.
func (r *record) state() (string, error) {
	result, err := decodeResult(r.Result)
	if err != nil {
		return "", err
	}
	if n := len(result.Interfaces); n > maxInterfaces {
		return "", fmt.Errorf("network attachment %s: result with %d interfaces, more than %d", r.PodID, n, maxInterfaces)
	}
	var namespace unix.Stat_t
	if err := unix.Stat(r.Netns, &namespace); err != nil {
		return "", fmt.Errorf("network namespace %s: %w", r.Netns, err)
	}
	if !hasInterface(r.Netns) {
		return "", fmt.Errorf("network namespace %s has no interface %s", r.Netns, ifName)
	}
	state := strconv.FormatUint(namespace.Ino, 10)
	for _, i := range result.Interfaces {
		if i.Sandbox != "" {
			continue
		}
		link, err := netlink.LinkByName(i.Name)
		if err != nil {
			return "", fmt.Errorf("interface %.80q: %w", i.Name, err)
		}
		a := link.Attrs()
		// Without the carrier (net.FlagRunning), which the kernel sets some time after ADD.
		state += fmt.Sprintf(" %d in %d %v", a.Index, a.MasterIndex, a.Flags&net.FlagUp)
	}
	return state, nil
}
