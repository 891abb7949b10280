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
	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/checkpoint"
)

// An attachment to a generic network leaves nothing beyond a reboot but addresses of host-local. podd finds those by
// the id of the pod, which they name, so the attachment's record need not be on the disk before the plugins run: if the
// loss of the power takes it, restoreLost writes it anew. For that it needs the configuration, which is on the disk
// before the first such attachment.

// confSuffix ends the names of kept configurations in the state directory. They begin with the SHA-256 of the content.
const confSuffix = ".conf"

// keptConf is a record of a configuration, and of the boot in which pods were attached with it last.
type keptConf struct {
	Conf   json.RawMessage `json:"conf"`
	BootID string          `json:"bootID"`
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

// restorable reports whether restoreLost can restore the record of the attachment. The configuration is kept then.
func (c *CNI) restorable(podID string, list *libcni.NetworkConfigList) (bool, error) {
	if !c.own(podID) || c.checkGeneric(list) != nil {
		return false, nil
	}
	return true, c.keepConf(list)
}

// keepConf keeps a configuration for restoreLost. It writes the file once in the life of the process, even if it
// exists: it may not be on the disk.
func (c *CNI) keepConf(list *libcni.NetworkConfigList) error {
	sum := sha256.Sum256(list.Bytes)
	name := hex.EncodeToString(sum[:]) + confSuffix
	c.kept.mu.Lock()
	defer c.kept.mu.Unlock()
	if c.kept.names[name] {
		return nil
	}
	err := checkpoint.Write(filepath.Join(c.cfg().StateDir, name), recordVersion, keptConf{list.Bytes, c.cfg().BootID})
	if err != nil {
		return fmt.Errorf("keep the network's configuration: %w", err)
	}
	if c.kept.names == nil {
		c.kept.names = map[string]bool{}
	}
	c.kept.names[name] = true
	return nil
}

// keptLists returns the configurations that were kept in an earlier boot, by the path of their file. One that cannot be
// read has an error instead. In the running boot no record is lost.
func (c *CNI) keptLists() (map[string]*libcni.NetworkConfigList, error) {
	entries, err := os.ReadDir(c.cfg().StateDir)
	if err != nil {
		return nil, err
	}
	lists, errs := map[string]*libcni.NetworkConfigList{}, []error{}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != confSuffix {
			continue
		}
		path := filepath.Join(c.cfg().StateDir, e.Name())
		list, boot, err := readKept(path)
		if err != nil {
			errs = append(errs, fmt.Errorf("configuration of earlier pods' network, %s: %w", path, err))
		} else if boot != c.cfg().BootID {
			lists[path] = list
		}
	}
	return lists, errors.Join(errs...)
}

func readKept(path string) (list *libcni.NetworkConfigList, boot string, err error) {
	var kept keptConf
	if err := checkpoint.Read(path, recordVersion, &kept); err != nil {
		return nil, "", err
	}
	if list, err = parseConf(kept.Conf); err != nil {
		return nil, "", err
	}
	list, err = flatten(list)
	return list, kept.BootID, err
}

// restoreLost writes the records anew of pods that have an address of host-local but no record, or a damaged one, so
// that Teardown and GC free the address, and frees those of which host-local does not know the pod any more. It forgets
// the configurations of which no pod has an address. No attachment may be in progress.
func (c *CNI) restoreLost() error {
	lists, err := c.keptLists()
	errs := []error{err}
	for path, list := range lists {
		inUse, err := c.restoreOf(list)
		if err == nil && !inUse {
			err = os.Remove(path)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil || len(lists) == 0 {
		return err
	}
	return c.removeBlank()
}

// removeBlank removes the records that the loss of the power has emptied of pods without an address, in which nothing
// is left to free. Damage of other kinds is left to Abandon: the disk has it.
func (c *CNI) removeBlank() error {
	ids, err := c.Attachments()
	errs := []error{err}
	for _, id := range ids {
		if path := c.recordPath(id); c.own(id) && blank(path) {
			c.log.WithField("pod", id).
				Info("network record was lost when the machine went down, and the pod has no address")
			errs = append(errs, os.Remove(path))
		}
	}
	return errors.Join(errs...)
}

// blank reports whether the file has no content, or zeros only: it was made, and its content has not reached the disk.
func blank(path string) bool {
	data, err := readCapped(path)
	return err == nil && len(bytes.Trim(data, "\x00")) == 0
}

// restoreOf is restoreLost for one network. It reports whether a pod has an address.
func (c *CNI) restoreOf(list *libcni.NetworkConfigList) (inUse bool, err error) {
	var errs []error
	for _, dir := range leaseDirs(list) {
		freed, err := freeBlank(dir)
		if errs = append(errs, err); len(freed) > 0 {
			c.log.WithFields(logrus.Fields{"network": list.Name, "addresses": strings.Join(freed, " ")}).
				Info("freed addresses whose files were emptied when the machine went down")
		}
	}
	leases, err := leasesOf(list)
	errs = append(errs, err)
	for id, addresses := range leases {
		if c.own(id) {
			inUse = true
			errs = append(errs, c.restore(id, list, addresses))
		}
	}
	return inUse, errors.Join(errs...)
}

// restore writes the record of a pod anew unless it has one.
func (c *CNI) restore(podID string, list *libcni.NetworkConfigList, addresses []string) error {
	_, err := c.readRecord(podID)
	if err == nil || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrDamaged) {
		return err
	}
	// The namespace ended with the power: no file has this name, so DEL gets a dummy.
	lost := Request{PodID: podID, Netns: filepath.Join(c.cfg().NetnsDir, "lost-"+podID)}
	r, err := rebuildRecord(lost, list, addresses)
	if err != nil {
		return err
	}
	r.restorable = true // its configuration is kept
	slices.Sort(addresses)
	c.log.WithField("pod", podID).WithField("addresses", strings.Join(addresses, " ")).
		Info("network record was lost when the machine went down, restored it from the pod's addresses")
	return c.writeRecord(r)
}
