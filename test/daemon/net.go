package daemon

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
)

// givenSubnets are those of the process's daemons: a bridge has its address only once there is a pod.
var givenSubnets sync.Map

// freeSubnets returns a private IPv4 subnet that no interface of the host is in, and an IPv6 one if the host has IPv6.
// Each has addresses for more pods than a bridge has ports, 1,023.
func freeSubnets() (v4, v6 string, err error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "", "", err
	}
	for range 100 {
		a, b := 64+rand.IntN(64), 4*rand.IntN(64)
		_, subnet, err := net.ParseCIDR(fmt.Sprintf("10.%d.%d.0/22", a, b))
		if err != nil {
			return "", "", err
		}
		if _, given := givenSubnets.LoadOrStore(subnet.String(), true); given || taken(subnet, addrs) {
			continue
		}
		off, err := os.ReadFile("/proc/sys/net/ipv6/conf/all/disable_ipv6")
		if err == nil && strings.TrimSpace(string(off)) == "0" {
			v6 = fmt.Sprintf("fd00:9057:%x:%x::/64", a, b)
		}
		return subnet.String(), v6, nil
	}
	return "", "", errors.New("no free subnet in 10.64.0.0/10")
}

// taken reports whether an interface has an address in the subnet, or a subnet that contains it.
func taken(subnet *net.IPNet, addrs []net.Addr) bool {
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && (subnet.Contains(n.IP) || n.Contains(subnet.IP)) {
			return true
		}
	}
	return false
}

// removeBridge deletes the bridge, which the CNI plugin creates and never deletes.
func (d *Daemon) removeBridge() error {
	link, err := netlink.LinkByName(d.Bridge)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err != nil {
		return err
	}
	return netlink.LinkDel(link)
}
