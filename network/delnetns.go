package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/network/reference"
	"github.com/podd-project/podd/oci/thread"
)

// A DEL of plugins that find their packet filter rules by the addresses of the pod's interface (reference.Masquerades)
// removes none if the pod's namespace is gone, or if an earlier DEL was interrupted after it had deleted the interface.
// It gets a dummy instead: a namespace that holds only an interface of that name with the recorded addresses. The dummy
// belongs to a thread and has no name on disk, so it ends with the DEL or with the daemon.

// delNetns returns the path of the namespace to pass to DEL: the pod's own; "" if that is gone, as CNI requires; or a
// dummy. The caller must call done after the DEL.
func (c *CNI) delNetns(ctx context.Context, r *record) (path string, done func()) {
	own := ""
	if netnsExists(r.Netns) {
		own = r.Netns
	}
	prefixes := r.prefixes()
	if len(prefixes) == 0 || !reference.Masquerades(r.list) {
		return own, func() {}
	}
	if own != "" && hasInterface(own) {
		if err := restoreAddresses(own, prefixes); err != nil {
			c.log.WithField("pod", r.PodID).WithError(err).
				Warn("failed to restore the addresses of the pod's interface, masquerade rules may be left over")
		}
		return own, func() {}
	}
	path, done, err := newDummyNetns(ctx, prefixes)
	if err != nil {
		c.log.WithField("pod", r.PodID).WithError(err).
			Warn("failed to replace the pod's deleted interface by a dummy, masquerade rules may be left over")
		return own, func() {}
	}
	return path, done
}

// prefixes returns the addresses in the record's result with their prefix lengths; it skips those that cannot be
// parsed.
func (r *record) prefixes() []netip.Prefix {
	if len(r.Result) == 0 {
		return nil
	}
	a, err := decodeResult(r.Result)
	if err != nil {
		return nil
	}
	texts, err := a.addresses()
	if err != nil {
		return nil
	}
	var out []netip.Prefix
	for _, text := range texts {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p)
		}
	}
	return out
}

func hasInterface(netns string) bool {
	return inNetns(netns, func() error {
		_, err := net.InterfaceByName(ifName)
		return err
	}) == nil
}

// newDummyNetns makes a namespace with an interface that has these addresses. It exists until done is called.
func newDummyNetns(ctx context.Context, addresses []netip.Prefix) (path string, done func(), err error) {
	ready, release, ended := make(chan string, 1), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- thread.Run(func() error {
			if err := enterDummyNetns(addresses); err != nil {
				return err
			}
			ready <- fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
			select {
			case <-release:
			case <-ctx.Done():
			}
			return nil
		})
	}()
	select {
	case path := <-ready:
		return path, func() { close(release); <-ended }, nil
	case err := <-ended:
		return "", nil, fmt.Errorf("make dummy interface: %w", err)
	}
}

// enterDummyNetns moves the calling thread to a new namespace with the interface: a veth, which needs no further kernel
// module on a node with these plugins.
func enterDummyNetns(addresses []netip.Prefix) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: ifName}, PeerName: "peer"}
	if err := netlink.LinkAdd(link); err != nil {
		return fmt.Errorf("add link: %w", err)
	}
	return addAddresses(link, addresses)
}

// restoreAddresses adds the addresses to the pod's interface that it had after ADD. A sandbox with its own network
// stack (gVisor) removes them when it takes the interface over, but plugins find their masquerade rules by them. No
// process may run in the pod.
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

// addAddresses adds the missing addresses to the link.
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
