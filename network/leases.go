package network

import (
	"errors"

	"github.com/containernetworking/cni/libcni"

	"github.com/podd-project/podd/network/reference"
)

// Leases returns the addresses that the IPAM plugin host-local has allocated in the known networks, by container id.
// host-local implements no GC, so leaked addresses must be found this way. Other plugins do not expose theirs. The
// error names files that cannot be read or were emptied; the addresses of all others are returned.
func (c *CNI) Leases() (map[string][]string, error) {
	ids, err := c.Attachments()
	if err != nil {
		return nil, err
	}
	leases := map[string][]string{}
	var errs []error
	for _, list := range c.networks(ids) {
		found, err := leasesOf(list)
		errs = append(errs, err)
		for id, addresses := range found {
			leases[id] = append(leases[id], addresses...)
		}
	}
	return leases, errors.Join(errs...)
}

// leasesOf returns the addresses of one network.
func leasesOf(list *libcni.NetworkConfigList) (map[string][]string, error) {
	return reference.Leases(list, func(id string) bool { return checkPodID(id) == nil })
}
