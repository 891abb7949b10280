package shim

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/vm/jail"
	"github.com/podd-project/podd/oci/vm/vmm"
	"github.com/podd-project/podd/oci/vm/wire"
)

// network is the machine's part of the pod's network namespace.
type network struct {
	nics       []vmm.NIC
	interfaces []wire.Interface
	routes     []wire.Route
}

// connectNetwork connects each interface of the pod with a tap for the machine, which takes over its addresses: what
// arrives at one leaves by the other. The interfaces keep their addresses, which are no longer used, so that CNI
// plugins find them. With open the taps are opened, for a monitor that may not.
func connectNetwork(j *jail.Jail, open bool) (n network, err error) {
	err = j.Do(func() error {
		if err := removeTaps(); err != nil {
			return err
		}
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		names := map[int]string{}
		for _, l := range links {
			if l.Attrs().Flags&net.FlagLoopback != 0 || l.Attrs().Flags&net.FlagUp == 0 || len(l.Attrs().HardwareAddr) == 0 {
				continue
			}
			if err := n.connect(l); err != nil {
				return fmt.Errorf("interface %s: %w", l.Attrs().Name, err)
			}
			names[l.Attrs().Index] = l.Attrs().Name
		}
		if open {
			if err := n.openTaps(); err != nil {
				return err
			}
		}
		n.routes, err = guestRoutes(names)
		return err
	})
	return n, err
}

// tapPrefix is that of the names of taps.
const tapPrefix = "podd-tap"

// removeTaps removes those of an earlier machine of the pod.
func removeTaps() error {
	links, err := netlink.LinkList()
	if err != nil {
		return err
	}
	for _, l := range links {
		if strings.HasPrefix(l.Attrs().Name, tapPrefix) {
			if err := netlink.LinkDel(l); err != nil {
				return err
			}
		}
	}
	return nil
}

// connect adds one interface.
func (n *network) connect(l netlink.Link) error {
	a := l.Attrs()
	i := wire.Interface{Name: a.Name, MAC: a.HardwareAddr.String(), MTU: a.MTU}
	addresses, err := netlink.AddrList(l, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	for _, addr := range addresses {
		if !addr.IP.IsLinkLocalUnicast() {
			i.Addresses = append(i.Addresses, addr.IPNet.String())
		}
	}
	tap, err := addTap(fmt.Sprintf("%s%d", tapPrefix, len(n.nics)), a.MTU)
	if err != nil {
		return err
	}
	for _, way := range [][2]netlink.Link{{l, tap}, {tap, l}} {
		if err := redirect(way[0], way[1]); err != nil {
			return fmt.Errorf("redirect %s to %s: %w", way[0].Attrs().Name, way[1].Attrs().Name, err)
		}
	}
	n.nics = append(n.nics, vmm.NIC{Tap: tap.Attrs().Name, MAC: i.MAC})
	n.interfaces = append(n.interfaces, i)
	return nil
}

// addTap makes a tap that the monitor may open without privileges.
func addTap(name string, mtu int) (netlink.Link, error) {
	tap := &netlink.Tuntap{
		LinkAttrs: netlink.LinkAttrs{Name: name, MTU: mtu}, Mode: netlink.TUNTAP_MODE_TAP,
		Flags: netlink.TUNTAP_NO_PI | netlink.TUNTAP_VNET_HDR, Owner: monitorUser(), Group: monitorUser(), Queues: 1,
	}
	if err := netlink.LinkAdd(tap); err != nil {
		return nil, fmt.Errorf("make tap %s: %w", name, err)
	}
	for _, f := range tap.Fds {
		_ = f.Close()
	}
	link, err := netlink.LinkByName(name)
	if err != nil {
		return nil, err
	}
	return link, errors.Join(netlink.LinkSetMTU(link, mtu), netlink.LinkSetUp(link))
}

// closeTaps closes those that are open. It can be called again.
func (n *network) closeTaps() {
	for _, nic := range n.nics {
		_ = nic.File.Close() // of nil, too
	}
}

// openTaps opens the taps.
func (n *network) openTaps() error {
	for i, nic := range n.nics {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		n.nics[i].File = os.NewFile(uintptr(fd), nic.Tap)
		request, err := unix.NewIfreq(nic.Tap)
		if err != nil {
			return err
		}
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
			return fmt.Errorf("open tap %s: %w", nic.Tap, err)
		}
	}
	return nil
}

// redirect sends everything that arrives at one interface out of the other, by an ingress filter that matches all
// (tc-u32(8): cls_matchall is missing in some kernels). What an earlier machine of the pod has left is removed.
func redirect(from, to netlink.Link) error {
	ingress := &netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: from.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS,
	}}
	err := netlink.QdiscAdd(ingress)
	if errors.Is(err, unix.EEXIST) {
		if err = netlink.QdiscDel(ingress); err == nil {
			err = netlink.QdiscAdd(ingress)
		}
	}
	if err != nil {
		return err
	}
	return netlink.FilterAdd(&netlink.U32{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: from.Attrs().Index, Parent: netlink.MakeHandle(0xffff, 0), Priority: 1, Protocol: unix.ETH_P_ALL,
		},
		Actions: []netlink.Action{netlink.NewMirredAction(to.Attrs().Index)},
	})
}

// guestRoutes are the routes of the main tables that the kernel does not add itself, by interfaces of the machine.
// Those without a gateway come first: a gateway must be reachable.
func guestRoutes(names map[int]string) (routes []wire.Route, err error) {
	var behind []wire.Route
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := netlink.RouteList(nil, family)
		if err != nil {
			return nil, err
		}
		for _, r := range list {
			name, ours := names[r.LinkIndex]
			if !ours || r.Protocol == unix.RTPROT_KERNEL || r.Type != unix.RTN_UNICAST {
				continue
			}
			route := wire.Route{
				Interface: name, Destination: destination(r, family), Scope: int(r.Scope), Flags: r.Flags & unix.RTNH_F_ONLINK,
				Metric: r.Priority,
			}
			if r.Src != nil {
				route.Source = r.Src.String()
			}
			if r.Gw == nil {
				routes = append(routes, route)
				continue
			}
			route.Gateway = r.Gw.String()
			behind = append(behind, route)
		}
	}
	return append(routes, behind...), nil
}

// destination is a route's in CIDR notation; the default route has none in some versions of the library.
func destination(r netlink.Route, family int) string {
	if r.Dst != nil {
		return r.Dst.String()
	}
	if family == netlink.FAMILY_V6 {
		return "::/0"
	}
	return "0.0.0.0/0"
}
