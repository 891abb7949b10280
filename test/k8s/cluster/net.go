package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// network has the addresses of one cluster: a /16 that the machine does not use, 10.N.0.0.
//
//	10.N.0.0/24     the hosts: .1 the control plane, .11 and up the nodes, .254 the machine itself
//	10.N.64.0/20    services; .64.10 is DNS
//	10.N.128.0/17   pods, a /24 for each node
type network struct {
	Prefix string `json:"prefix"` // "10.N"
	Link   string `json:"link"`   // the machine's interface to the cluster
}

const (
	controlHost = 1
	machineHost = 254
)

func (n network) host(i int) string    { return fmt.Sprintf("%s.0.%d", n.Prefix, i) }
func (n network) services() string     { return n.Prefix + ".64.0/20" }
func (n network) firstService() string { return n.Prefix + ".64.1" }
func (n network) dns() string          { return n.Prefix + ".64.10" }
func (n network) pods() string         { return n.Prefix + ".128.0/17" }

// freeNetwork returns a /16 that overlaps with no route of the machine.
func freeNetwork() (network, error) {
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return network{}, fmt.Errorf("list routes: %w", err)
	}
	for range 1000 {
		n := 129 + rand.IntN(120) // other networks and other tests of podd mostly use numbers below 129
		_, subnet, err := net.ParseCIDR(fmt.Sprintf("10.%d.0.0/16", n))
		if err != nil {
			return network{}, err
		}
		if !routed(routes, subnet) {
			return network{Prefix: fmt.Sprintf("10.%d", n), Link: fmt.Sprintf("pk%d-%04x", n, rand.IntN(1<<16))}, nil
		}
	}
	return network{}, errors.New("every 10.N.0.0/16 from 10.129 on is in use on this machine")
}

func routed(routes []netlink.Route, subnet *net.IPNet) bool {
	for _, r := range routes {
		if r.Dst == nil || r.Dst.IP.IsUnspecified() {
			continue // the default route
		}
		if subnet.Contains(r.Dst.IP) || r.Dst.Contains(subnet.IP) {
			return true
		}
	}
	return false
}

// bridge is the name of the bridge that connects the hosts. It is on the control plane's host, so that the machine's
// packet filter rules do not apply to its traffic.
const bridge = "cluster"

// wireControl creates the bridge, and the machine's link to it.
func (c *Cluster) wireControl() error {
	return c.Control.netlink(func(control *netlink.Handle, fd netns.NsHandle) error {
		sw := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridge}}
		if err := control.LinkAdd(sw); err != nil {
			return fmt.Errorf("create the bridge: %w", err)
		}
		cable := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: c.Net.Link}, PeerName: "machine",
			PeerNamespace: netlink.NsFd(int(fd))}
		if err := netlink.LinkAdd(cable); err != nil {
			return fmt.Errorf("create %s: %w", c.Net.Link, err)
		}
		machine, err := netlink.NewHandle()
		if err != nil {
			return err
		}
		defer machine.Close()
		return errors.Join(plug(control, "machine"), up(control, "lo", ""),
			up(control, bridge, c.Net.host(controlHost)), up(machine, c.Net.Link, c.Net.host(machineHost)))
	})
}

// wireNode connects a node's host to the bridge.
func (c *Cluster) wireNode(n *Node) error {
	return c.Control.netlink(func(control *netlink.Handle, _ netns.NsHandle) error {
		return n.Host.netlink(func(node *netlink.Handle, fd netns.NsHandle) error {
			cable := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: n.Name}, PeerName: "eth0",
				PeerNamespace: netlink.NsFd(int(fd))}
			if err := control.LinkAdd(cable); err != nil {
				return fmt.Errorf("connect %s: %w", n.Name, err)
			}
			if err := errors.Join(plug(control, n.Name), up(node, "lo", ""), up(node, "eth0", n.Addr)); err != nil {
				return err
			}
			via := netlink.Route{Gw: net.ParseIP(c.Net.host(controlHost))}
			if err := node.RouteAdd(&via); err != nil {
				return fmt.Errorf("default route of %s: %w", n.Name, err)
			}
			return n.do(func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644) })
		})
	})
}

// route adds routes to the pods of a node on the machine and on all other hosts, as a cloud's route controller does.
func (c *Cluster) route(n *Node) error {
	_, pods, err := net.ParseCIDR(n.PodCIDR)
	if err != nil {
		return err
	}
	add := func(h *netlink.Handle, _ netns.NsHandle) error {
		return h.RouteReplace(&netlink.Route{Dst: pods, Gw: net.ParseIP(n.Addr)})
	}
	machine, err := netlink.NewHandle()
	if err != nil {
		return err
	}
	defer machine.Close()
	errs := []error{add(machine, netns.None()), c.Control.netlink(add)}
	for _, other := range c.Nodes {
		if other != n {
			errs = append(errs, other.Host.netlink(add))
		}
	}
	return errors.Join(errs...)
}

// netlink calls f with a handle on the host's network.
func (h *Host) netlink(f func(*netlink.Handle, netns.NsHandle) error) error {
	fd, err := netns.GetFromPath(h.ns("net"))
	if err != nil {
		return fmt.Errorf("network of %s: %w", h.Name, err)
	}
	defer fd.Close()
	handle, err := netlink.NewHandleAt(fd)
	if err != nil {
		return fmt.Errorf("network of %s: %w", h.Name, err)
	}
	defer handle.Close()
	return f(handle, fd)
}

// up sets a link up, with an address unless it is empty.
func up(h *netlink.Handle, name, addr string) error {
	link, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	if addr != "" {
		a, err := netlink.ParseAddr(addr + "/24")
		if err != nil {
			return err
		}
		if err := h.AddrAdd(link, a); err != nil {
			return fmt.Errorf("address of %s: %w", name, err)
		}
	}
	return h.LinkSetUp(link)
}

// plug attaches a link to the bridge and sets it up.
func plug(h *netlink.Handle, name string) error {
	link, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	sw, err := h.LinkByName(bridge)
	if err != nil {
		return err
	}
	return errors.Join(h.LinkSetMaster(link, sw), h.LinkSetUp(link))
}

// unplug removes the control plane's end of a node's link, which the kernel would remove some time after the node's
// namespace.
func (c *Cluster) unplug(n *Node) error {
	return c.Control.netlink(func(h *netlink.Handle, _ netns.NsHandle) error {
		link, err := h.LinkByName(n.Name)
		if errors.As(err, &netlink.LinkNotFoundError{}) {
			return nil
		}
		if err != nil {
			return err
		}
		return h.LinkDel(link)
	})
}

// routeAll adds the routes to the pods of all nodes.
func (c *Cluster) routeAll() error {
	var errs []error
	for _, n := range c.Nodes {
		errs = append(errs, c.route(n))
	}
	return errors.Join(errs...)
}
