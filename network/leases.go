package network

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/checkpoint"
)

// hostLocal is the name of an IPAM plugin.
const hostLocal = "host-local"

// hostLocalDir is where the IPAM plugin host-local stores addresses unless its configuration sets another directory.
const hostLocalDir = "/var/lib/cni/networks"

// maxLease bounds what is read of the file of an address: an id and the name of an interface.
const maxLease = 4096

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
			id, _, err := readLease(filepath.Join(dir, address))
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // it was freed meanwhile
				errs = append(errs, err)
			}
			if id != "" {
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
		if json.Unmarshal(p.Bytes, &conf) != nil || conf.IPAM.Type != hostLocal {
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

// readLease returns the id in the file of an address: "" if it has none, and blank if that is because the content of
// the file was lost.
func readLease(path string) (id string, blank bool, err error) {
	// Neither follow a link nor wait for the other end of a FIFO.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {
		return "", false, nil // a link or a socket
	}
	if err != nil {
		return "", false, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", false, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxLease))
	if err != nil {
		return "", false, err
	}
	if len(bytes.Trim(data, "\x00")) == 0 {
		return "", true, nil
	}
	line, _, _ := strings.Cut(string(data), "\n")
	if id = strings.TrimSpace(line); checkPodID(id) != nil {
		return "", false, nil
	}
	return id, false, nil
}

// mended is what mendLeases did: addresses that it freed, and those without content that it left.
type mended struct{ freed, left []string }

// mendLeases mends the files of a directory that the power took, or the content of them, since host-local does not sync
// them: without an id nothing ever frees the address. recorded has the pods of addresses by file. Such a file gets the
// id of that pod again, so that its DEL removes the rules of the address before another pod gets it. The others are
// removed, unless a file has the id of a pod that podd does not know: they may be of other runtimes, whose DEL is to
// come. host-local writes no file while its lock is held. What was changed is on the disk when mendLeases returns.
func mendLeases(dir string, recorded map[string]string, known func(id string) bool) (m mended, err error) {
	lock, err := lockLeases(dir)
	if lock == nil {
		return m, err
	}
	defer lock.Close() // which unlocks it
	addresses, err := leaseFiles(dir)
	errs, others := []error{err}, err != nil
	for _, address := range addresses {
		path := filepath.Join(dir, address)
		id, blank, err := readLease(path)
		errs = append(errs, err)
		switch {
		case blank && recorded[path] == "":
			m.left = append(m.left, address)
		case !blank && !known(id):
			others = true
		}
	}
	for path, pod := range recorded {
		if filepath.Dir(path) != dir {
			continue
		}
		if _, blank, err := readLease(path); blank || errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, checkpoint.WriteFileSync(path, []byte(pod+"\r\n"+ifName), 0o600))
		}
	}
	if others || len(m.left) == 0 {
		return m, errors.Join(errs...)
	}
	m.freed, m.left = m.left, nil
	for _, address := range m.freed {
		errs = append(errs, os.Remove(filepath.Join(dir, address)))
	}
	return m, errors.Join(append(errs, checkpoint.SyncName(lock.Name()))...)
}

// lockLeases takes host-local's lock of a directory, until the file is closed. It is nil if there is no directory.
func lockLeases(dir string) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for range 20 { // a plugin holds it for some milliseconds
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return lock, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	lock.Close()
	return nil, fmt.Errorf("lock %s: %w", lock.Name(), err)
}
