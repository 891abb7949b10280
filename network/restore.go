package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// restoreAddresses adds the addresses to the pod's interface that it had after ADD. A sandbox with its own network
// stack (gVisor) removes them when it takes the interface over, but plugins use them to find what to undo: without them
// the bridge plugin would leave its masquerade rules behind. Nothing may run in the pod any more.
func restoreAddresses(netns string, addresses []netip.Prefix) error {
	err := inNetns(netns, func() error {
		link, err := netlink.LinkByName(ifName)
		if err != nil {
			return err
		}
		return addAddresses(link, addresses)
	})
	if err != nil {
		return fmt.Errorf("restore addresses of the pod's interface: %w", err)
	}
	return nil
}

// addAddresses adds the addresses that the link lacks.
func addAddresses(link netlink.Link, addresses []netip.Prefix) error {
	for _, p := range addresses {
		a := &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
		if p.Addr().Is6() {
			a.Flags = unix.IFA_F_NODAD // no duplicate address detection: it is about to be deleted
		}
		if err := netlink.AddrAdd(link, a); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("add address %s: %w", p, err)
		}
	}
	return nil
}
