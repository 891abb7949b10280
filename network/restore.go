package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// restoreAddresses gives the pod's interface the addresses back that it had after ADD. A sandbox with a network stack
// of its own (gVisor) takes them away when it takes the interface over, but plugins look there for what to undo: the
// bridge plugin would leave its masquerading rules behind. Nothing may run in the pod any more.
func restoreAddresses(netns string, addresses []netip.Prefix) error {
	err := inNetns(netns, func() error {
		link, err := netlink.LinkByName(ifName)
		if err != nil {
			return err
		}
		return addAddresses(link, addresses)
	})
	if err != nil {
		return fmt.Errorf("give the pod's addresses back to its interface: %w", err)
	}
	return nil
}

// addAddresses adds those that the link lacks.
func addAddresses(link netlink.Link, addresses []netip.Prefix) error {
	for _, p := range addresses {
		a := &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
		if p.Addr().Is6() {
			a.Flags = unix.IFA_F_NODAD // nobody is to be asked, it is about to go
		}
		if err := netlink.AddrAdd(link, a); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("add address %s: %w", p, err)
		}
	}
	return nil
}
