package network

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/containernetworking/cni/libcni"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The plugins bridge and ptp make masquerade rules for the pod's addresses and at DEL remove those of the addresses that
// they find on the pod's interface: none when its namespace is gone, or when an earlier DEL got no further than the
// interface. Such a DEL is given a stand-in: a namespace that holds nothing but an interface of that name with the
// addresses of the record. It belongs to a thread and is nowhere on disk: it ends with the DEL, or with the daemon.

// masquerades tells whether a DEL of list needs the pod's interface for that.
func masquerades(list *libcni.NetworkConfigList) bool {
	return slices.ContainsFunc(list.Plugins, func(p *libcni.PluginConfig) bool {
		var conf struct {
			IPMasq bool `json:"ipMasq"`
		}
		kind := p.Network.Type
		return (kind == "bridge" || kind == "ptp") && json.Unmarshal(p.Bytes, &conf) == nil && conf.IPMasq
	})
}

// delNetns returns the namespace that DEL is to be told: the pod's own; "" when that is gone, as CNI wants it; or a
// stand-in, which done ends.
func (c *CNI) delNetns(ctx context.Context, r *record) (path string, done func()) {
	own := ""
	if netnsExists(r.Netns) {
		own = r.Netns
	}
	prefixes := r.prefixes()
	if len(prefixes) == 0 || !masquerades(r.list) {
		return own, func() {}
	}
	if own != "" && hasInterface(own) {
		if err := restoreAddresses(own, prefixes); err != nil {
			c.log.WithField("pod", r.PodID).WithError(err).Warn("masquerade rules may stay")
		}
		return own, func() {}
	}
	path, done, err := newDummyNetns(ctx, prefixes)
	if err != nil {
		c.log.WithField("pod", r.PodID).WithError(err).Warn("the pod's interface is gone and none could be made in its place: masquerade rules may stay")
		return own, func() {}
	}
	return path, done
}

// prefixes are the addresses in the record's result with their lengths; what cannot be read is left out.
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

// newDummyNetns makes a namespace that holds an interface with these addresses, until done is called.
func newDummyNetns(ctx context.Context, addresses []netip.Prefix) (path string, done func(), err error) {
	ready, release, ended := make(chan string, 1), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- onThread(func() error {
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
		return "", nil, fmt.Errorf("make a stand-in for the pod's interface: %w", err)
	}
}

// enterDummyNetns moves the calling thread to a new namespace. The link is of the kind that these plugins need anyway.
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
