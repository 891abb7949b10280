package network

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/libcni"
)

// hostLocalDir is where the IPAM plugin host-local stores addresses unless its configuration sets another directory.
const hostLocalDir = "/var/lib/cni/networks"

// Leases returns the addresses that the IPAM plugin host-local has allocated in the known networks, by container id.
// host-local implements no GC, so leaked addresses must be found this way. Other plugins do not expose theirs.
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

// leasesOf reads the store of one network: a directory with a file for each address, whose first line is the
// container's id.
func leasesOf(list *libcni.NetworkConfigList) (map[string][]string, error) {
	leases := map[string][]string{}
	var errs []error
	for _, p := range list.Plugins {
		var conf struct {
			IPAM struct {
				Type    string `json:"type"`
				DataDir string `json:"dataDir"`
			} `json:"ipam"`
		}
		if json.Unmarshal(p.Bytes, &conf) != nil || conf.IPAM.Type != "host-local" {
			continue
		}
		dir := conf.IPAM.DataDir
		if dir == "" {
			dir = hostLocalDir
		}
		dir = filepath.Join(dir, list.Name)
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, e := range entries {
			if _, err := netip.ParseAddr(e.Name()); err != nil {
				continue // its lock, and the last address of each range
			}
			if id := leaseHolder(filepath.Join(dir, e.Name())); id != "" {
				leases[id] = append(leases[id], e.Name())
			}
		}
	}
	return leases, errors.Join(errs...)
}

func leaseHolder(path string) string {
	data, err := os.ReadFile(path)
	if err != nil || len(data) > maxResult {
		return ""
	}
	id, _, _ := strings.Cut(string(data), "\n")
	if id = strings.TrimSpace(id); checkPodID(id) != nil {
		return ""
	}
	return id
}
