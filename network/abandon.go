package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"path/filepath"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/podd-project/podd/checkpoint"
)

// ErrDamaged: a pod's record exists and is invalid, so Teardown does not know the arguments of ADD.
var ErrDamaged = errors.New("damaged record")

// damagedDir, in the state directory, holds damaged records for inspection.
const damagedDir = "damaged"

// Abandon detaches a pod whose record is damaged, or that has no record but an address: it runs DEL with the values in
// r and the current configuration, in that network and in those where the pod holds an address. This frees the
// resources that plugins find by the pod's id, namespace and addresses: interfaces, published ports, firewall rules.
// Resources that they find only by other parts of the lost result stay. The record is moved away.
func (c *CNI) Abandon(ctx context.Context, r Request) error {
	if err := r.Validate(); err != nil {
		return err
	}
	release, err := c.pods.Lock(ctx, r.PodID)
	if err != nil {
		return fmt.Errorf("wait for the pod's network: %w", err)
	}
	defer release()
	lists, err := c.candidateNetworks(r)
	if err != nil {
		return err
	}
	for _, list := range lists {
		lost, err := rebuildRecord(r, list, c.readableLeases(list)[r.PodID])
		if err != nil {
			return err
		}
		if err := c.del(ctx, lost, nil); err != nil {
			return err
		}
	}
	path := c.recordPath(r.PodID)
	kept, err := checkpoint.Quarantine(path, filepath.Join(c.stateDir, damagedDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	c.log.WithField("pod", r.PodID).WithField("kept", kept).
		Warn("failed to read the pod's network record, detached the pod by its id")
	return c.removeRecord(r.PodID) // only the DEL lock is left
}

// rebuildRecord returns a record whose result has the pod's addresses, by which plugins find its firewall rules.
func rebuildRecord(r Request, list *libcni.NetworkConfigList, addresses []string) (*record, error) {
	rebuilt := newRecord(r, list)
	result := types100.Result{CNIVersion: types100.ImplementedSpecVersion}
	for _, address := range addresses {
		addr, err := netip.ParseAddr(address)
		if err != nil {
			return nil, fmt.Errorf("address of pod %s: %w", r.PodID, err)
		}
		bits := addr.BitLen()
		address := net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(bits, bits)}
		result.IPs = append(result.IPs, &types100.IPConfig{Address: address})
	}
	if len(result.IPs) == 0 {
		return rebuilt, nil
	}
	converted, err := result.GetAsVersion(list.CNIVersion)
	if err != nil {
		return nil, fmt.Errorf("result of pod %s in CNI version %s: %w", r.PodID, list.CNIVersion, err)
	}
	rebuilt.Result, err = json.Marshal(converted)
	return rebuilt, err
}

// readableLeases returns the addresses of a network in readable files: the others must not keep pods from being
// detached.
func (c *CNI) readableLeases(list *libcni.NetworkConfigList) map[string][]string {
	leases, err := leasesOf(list)
	if err != nil {
		c.log.WithError(err).WithField("network", list.Name).Error("failed to read some addresses of the network")
	}
	return leases
}

// candidateNetworks returns the networks that a pod without a record may be in: the one that it would be attached to
// now, and those in which it holds an address.
func (c *CNI) candidateNetworks(r Request) ([]*libcni.NetworkConfigList, error) {
	var lists []*libcni.NetworkConfigList
	current, _, _, loadErr := loadConf(c.confDir(r.ConfDir))
	if loadErr == nil {
		lists = append(lists, current)
	}
	ids, err := c.Attachments()
	if err != nil {
		return nil, err
	}
	for _, list := range c.networks(ids) {
		if len(c.readableLeases(list)[r.PodID]) > 0 && (current == nil || list.Name != current.Name) {
			lists = append(lists, list)
		}
	}
	if len(lists) == 0 {
		return nil, fmt.Errorf("%w: pod %s has no network record, and is not known to be in any network: %w",
			errdefs.ErrUnavailable, r.PodID, loadErr)
	}
	return lists, nil
}
