package reference

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
)

// hostLocal is the name of an IPAM plugin.
const hostLocal = "host-local"

// hostLocalDir is where the IPAM plugin host-local stores addresses unless its configuration sets another directory.
const hostLocalDir = "/var/lib/cni/networks"

const (
	// maxLease bounds the read of an address's file: it has an id and the name of an interface.
	maxLease = 4096
	// leaseWritten is the time after which host-local has written a file that it made.
	leaseWritten = time.Minute
)

// Leases returns the addresses that the IPAM plugin host-local has allocated in a network, by container id: it stores
// them in directories with a file for each address, whose first line is the id. Files without a valid id are skipped.
func Leases(list *libcni.NetworkConfigList, valid func(id string) bool) (map[string][]string, error) {
	leases := map[string][]string{}
	var errs []error
	for _, dir := range leaseDirs(list) {
		addresses, err := leaseFiles(dir)
		errs = append(errs, err)
		for _, address := range addresses {
			id, err := readLease(filepath.Join(dir, address))
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // freed in the meantime
				errs = append(errs, err)
			}
			if valid(id) {
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

// readLease returns the first line of an address's file, "" if it has none. It fails for a file that stayed
// empty: host-local does not sync its files, so a power failure can empty them, and then it never frees the address.
func readLease(path string) (string, error) {
	// Neither follow a link nor wait for the other end of a FIFO.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {
		return "", nil // a link or a socket
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return "", err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxLease))
	if err != nil {
		return "", err
	}
	if len(bytes.Trim(data, "\x00")) == 0 && time.Since(info.ModTime()) > leaseWritten {
		return "", fmt.Errorf("%s was emptied, probably by a power failure: remove it unless a pod has this address", path)
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSpace(line), nil
}
