package network

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"
	"golang.org/x/sys/unix"
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

// leasesOf reads the stores of one network: directories with a file for each address, whose first line is the
// container's id.
func leasesOf(list *libcni.NetworkConfigList) (map[string][]string, error) {
	leases := map[string][]string{}
	var errs []error
	for _, dir := range leaseDirs(list) {
		addresses, err := leaseFiles(dir)
		errs = append(errs, err)
		for _, address := range addresses {
			if id := leaseHolder(filepath.Join(dir, address)); id != "" {
				leases[id] = append(leases[id], address)
			}
		}
	}
	return leases, errors.Join(errs...)
}

// leaseDirs returns the directories in which host-local stores the addresses of a network.
func leaseDirs(list *libcni.NetworkConfigList) []string {
	var dirs []string
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
		dirs = append(dirs, filepath.Join(dir, list.Name))
	}
	return dirs
}

// leaseFiles returns the names of the files in a directory of host-local that are addresses. The others are its lock,
// and the last address of each range. An absent directory has none.
func leaseFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if _, err := netip.ParseAddr(e.Name()); err == nil {
			names = append(names, e.Name())
		}
	}
	return names, err
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

// freeBlank frees the addresses that no container can free, because the loss of the power took the id from the file
// that host-local does not sync: files without content, or with zeros. Under host-local's lock no file is one that it
// is just writing, so they are of an earlier boot.
func freeBlank(dir string) (freed []string, err error) {
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the directory is
	}
	if err != nil {
		return nil, err
	}
	defer lock.Close() // which unlocks it
	for range 20 {     // a plugin holds it for some milliseconds
		if err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	addresses, err := leaseFiles(dir)
	for _, address := range addresses {
		path := filepath.Join(dir, address)
		if !blank(path) {
			continue
		}
		if err := os.Remove(path); err != nil {
			return freed, err
		}
		freed = append(freed, address)
	}
	return freed, err
}
