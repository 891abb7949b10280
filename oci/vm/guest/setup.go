package guest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/vm/wire"
)

// setUp reads a wire.Pod and applies it.
func setUp(r io.Reader) error {
	var pod wire.Pod
	if err := wire.ReadBody(r, &pod); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(pod.Hostname)); err != nil {
		return fmt.Errorf("set the host name %q: %w", pod.Hostname, err)
	}
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("set up lo: %w", err)
	}
	for _, i := range pod.Interfaces {
		if err := setUpInterface(i); err != nil {
			return fmt.Errorf("set up interface %s: %w", i.Name, err)
		}
	}
	for _, route := range pod.Routes {
		if err := addRoute(route); err != nil {
			return fmt.Errorf("route to %s by %s: %w", route.Destination, route.Interface, err)
		}
	}
	for key, value := range pod.Sysctls {
		if err := os.WriteFile(sysctlPath(key), []byte(value), 0); err != nil {
			return fmt.Errorf("set sysctl %s: %w", key, pathless(err))
		}
	}
	return nil
}

// pathless returns the cause of an error that names a path.
func pathless(err error) error {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err
	}
	return err
}

// sysctlPath returns the file of a key. The first separator decides what separates, as in sysctl.d(5).
func sysctlPath(key string) string {
	if i := strings.IndexAny(key, "./"); i >= 0 && key[i] == '.' {
		key = strings.Map(func(c rune) rune {
			switch c {
			case '.':
				return '/'
			case '/':
				return '.'
			}
			return c
		}, key)
	}
	return filepath.Join("/proc/sys", filepath.Clean("/"+key))
}

// setUpInterface finds the interface by its MAC address and gives it name, MTU and addresses.
func setUpInterface(i wire.Interface) error {
	link, err := linkByMAC(i.MAC)
	if err != nil {
		return err
	}
	if link.Attrs().Name != i.Name {
		if err := netlink.LinkSetName(link, i.Name); err != nil {
			return err
		}
	}
	if err := netlink.LinkSetMTU(link, i.MTU); err != nil {
		return fmt.Errorf("MTU %d: %w", i.MTU, err)
	}
	for _, text := range i.Addresses {
		a, err := netlink.ParseAddr(text)
		if err != nil {
			return err
		}
		// CNI has detected duplicates.
		a.Flags |= unix.IFA_F_NODAD
		if err := netlink.AddrReplace(link, a); err != nil {
			return fmt.Errorf("address %s: %w", text, err)
		}
	}
	return netlink.LinkSetUp(link)
}

func linkByMAC(mac string) (netlink.Link, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		if l.Attrs().HardwareAddr.String() == mac {
			return l, nil
		}
	}
	return nil, fmt.Errorf("no interface has the MAC address %s", mac)
}

func addRoute(r wire.Route) error {
	link, err := netlink.LinkByName(r.Interface)
	if err != nil {
		return err
	}
	_, dst, err := net.ParseCIDR(r.Destination)
	if err != nil {
		return err
	}
	return netlink.RouteReplace(&netlink.Route{
		LinkIndex: link.Attrs().Index, Dst: dst, Gw: net.ParseIP(r.Gateway), Src: net.ParseIP(r.Source),
		Scope: netlink.Scope(r.Scope), Flags: r.Flags, Priority: r.Metric,
	})
}
