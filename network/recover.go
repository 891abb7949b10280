package network

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/containernetworking/cni/libcni"

	"github.com/podd-project/podd/checkpoint"
)

// An attachment to a network of the CNI project's plugins leaves nothing beyond a reboot but addresses of host-local.
// Those name the pod's id, by which podd finds them, so the attachment's record need not be on the disk before the
// plugins run: if the loss of the power takes it, Recover writes it anew. For that it needs the configuration, which is
// on the disk before the first such attachment of a boot.

// confSuffix ends the names of kept configurations in the state directory.
const confSuffix = ".conf"

// keptConf is the record of a configuration with which pods were attached in a boot.
type keptConf struct {
	Conf   json.RawMessage `json:"conf"`
	BootID string          `json:"bootID"`

	path string
	list *libcni.NetworkConfigList // Conf, parsed
}

// keptConfs are the names of the configurations that this process has kept.
type keptConfs struct {
	mu    sync.Mutex
	names map[string]bool
}

// own reports whether a pod of this state directory has the id.
func (c *CNI) own(podID string) bool {
	mark := c.cfg().Mark
	return mark != "" && c.cfg().BootID != "" && strings.HasSuffix(podID, mark)
}

// restorable reports whether Recover can write the record of the attachment anew. The configuration is kept then.
func (c *CNI) restorable(podID string, list *libcni.NetworkConfigList) (bool, error) {
	if !c.own(podID) || c.checkGeneric(list) != nil || !c.onlyHostLocal(list) {
		return false, nil
	}
	return true, c.keepConf(list)
}

// onlyHostLocal reports whether leaseDirs finds all addresses of a generic network: host-local has its own name, and
// is not a plugin of the list.
func (c *CNI) onlyHostLocal(list *libcni.NetworkConfigList) bool {
	return !slices.ContainsFunc(list.Plugins, func(p *libcni.PluginConfig) bool {
		kind, err := c.project(p.Network.Type)
		return err != nil || kind == hostLocal || p.Network.IPAM.Type != "" && p.Network.IPAM.Type != "host-local"
	})
}

// keepConf keeps a configuration for Recover. It writes the file once in the life of the process, even if it exists: it
// may not be on the disk. That of another boot has another name: Recover may have failed.
func (c *CNI) keepConf(list *libcni.NetworkConfigList) error {
	boot := c.cfg().BootID
	sum := sha256.Sum256(append([]byte(boot), list.Bytes...))
	name := hex.EncodeToString(sum[:]) + confSuffix
	c.kept.mu.Lock()
	defer c.kept.mu.Unlock()
	if c.kept.names[name] {
		return nil
	}
	kept := keptConf{Conf: list.Bytes, BootID: boot}
	if err := checkpoint.Write(filepath.Join(c.cfg().StateDir, name), recordVersion, kept); err != nil {
		return fmt.Errorf("keep the network's configuration: %w", err)
	}
	if c.kept.names == nil {
		c.kept.names = map[string]bool{}
	}
	c.kept.names[name] = true
	return nil
}

// Recover writes the records anew that the loss of the power has taken of pods with an address of host-local, so that
// Teardown and GC free it. It also mends the files of host-local that it has emptied, see mendLeases. It does so once
// in a boot, for the networks of earlier ones. Call it before pods are attached.
func (c *CNI) Recover() error {
	kept, err := c.earlierConfs()
	if len(kept) == 0 {
		return err
	}
	errs := []error{err}
	recorded, err := c.recordedLeases()
	if err != nil {
		return err
	}
	for _, k := range kept {
		err := c.recoverNetwork(k.list, recorded)
		if err == nil { // else the next start tries again
			err = os.Remove(k.path)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// earlierConfs returns the configurations kept in an earlier boot. One that cannot be read is moved away.
func (c *CNI) earlierConfs() ([]*keptConf, error) {
	entries, err := os.ReadDir(c.cfg().StateDir)
	if err != nil {
		return nil, err
	}
	var kept []*keptConf
	var errs []error
	for _, e := range entries {
		if filepath.Ext(e.Name()) != confSuffix {
			continue
		}
		k, err := readKept(filepath.Join(c.cfg().StateDir, e.Name()))
		switch {
		case errors.Is(err, ErrDamaged):
			_, moveErr := checkpoint.Quarantine(k.path, filepath.Join(c.cfg().StateDir, damagedDir))
			errs = append(errs, err, moveErr)
		case err != nil:
			errs = append(errs, err)
		case k.BootID != c.cfg().BootID:
			kept = append(kept, k)
		}
	}
	return kept, errors.Join(errs...)
}

// readKept reads a kept configuration; ErrDamaged if it will never be readable. The error names the file.
func readKept(path string) (*keptConf, error) {
	k := &keptConf{path: path}
	err := checkpoint.Read(path, recordVersion, k)
	if err != nil && !checkpoint.IsPermanent(err) {
		return k, fmt.Errorf("configuration of earlier pods' network: %w", err)
	}
	if err == nil {
		k.list, err = parseConf(k.Conf)
	}
	if err == nil {
		k.list, err = flatten(k.list)
	}
	if err != nil {
		return k, fmt.Errorf("configuration of earlier pods' network, %s: %w: %w", path, ErrDamaged, err)
	}
	return k, nil
}

// recoverNetwork is Recover for one network.
func (c *CNI) recoverNetwork(list *libcni.NetworkConfigList, recorded map[string]string) error {
	for _, dir := range leaseDirs(list) {
		freed, err := mendLeases(dir, recorded, c.own)
		if len(freed) > 0 {
			c.log.WithField("network", list.Name).WithField("addresses", strings.Join(freed, " ")).
				Warn("freed addresses whose files lost their content when the machine went down")
		}
		if err != nil {
			return err
		}
	}
	leases, err := leasesOf(list)
	errs := []error{err}
	for id, addresses := range leases {
		if path := c.recordPath(id); c.own(id) && (absent(path) || blank(path)) {
			errs = append(errs, c.restore(id, list, addresses))
		}
	}
	return errors.Join(errs...)
}

// restore writes the record of a pod anew.
func (c *CNI) restore(podID string, list *libcni.NetworkConfigList, addresses []string) error {
	// The namespace ended with the power: no file has this name, so DEL gets a dummy.
	lost := Request{PodID: podID, Netns: filepath.Join(c.cfg().NetnsDir, "lost-"+podID)}
	r, err := rebuildRecord(lost, list, addresses)
	if err != nil {
		return err
	}
	slices.Sort(addresses)
	c.log.WithField("pod", podID).WithField("addresses", strings.Join(addresses, " ")).
		Info("network record was lost when the machine went down, restored it from the pod's addresses")
	return c.writeRecord(r) // synced: the configuration is removed next
}

// recordedLeases returns the pods of the records by the files that host-local has of their addresses.
func (c *CNI) recordedLeases() (map[string]string, error) {
	ids, err := c.Attachments()
	if err != nil {
		return nil, err
	}
	pods := map[string]string{}
	for _, id := range ids {
		r, err := c.readRecord(id)
		if err != nil || len(r.Result) == 0 {
			continue // Teardown reports it
		}
		result, err := parseResult(r.Result, "cni")
		if err != nil {
			continue
		}
		for _, dir := range leaseDirs(r.list) {
			for _, ip := range result.IPs {
				pods[filepath.Join(dir, ip.String())] = id
			}
		}
	}
	return pods, nil
}

func absent(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// blank reports whether the file has no content, or zeros only: it was made, and its content has not reached the disk.
func blank(path string) bool {
	data, err := readCapped(path)
	return err == nil && len(bytes.Trim(data, "\x00")) == 0
}
