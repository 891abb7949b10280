package network

import (
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

// keptConf is the record of a configuration with which pods were attached in a boot, of the state directory StateDir:
// not of one that it was copied from.
type keptConf struct {
	Conf     json.RawMessage `json:"conf"`
	BootID   string          `json:"bootID"`
	Mark     string          `json:"mark"`
	StateDir string          `json:"stateDir"`

	path string
	list *libcni.NetworkConfigList // Conf, parsed
}

// own reports whether a pod that was attached with the configuration can have the id.
func (k *keptConf) own(podID string) bool { return k.Mark != "" && strings.HasSuffix(podID, k.Mark) }

// keptConfs are the names of the configurations that this process has kept.
type keptConfs struct {
	mu    sync.Mutex
	names map[string]bool
}

// restorable reports whether Recover can write the record of the attachment anew, if the configuration is kept.
func (c *CNI) restorable(podID string, list *libcni.NetworkConfigList) bool {
	kept := keptConf{Mark: c.cfg().Mark}
	return c.cfg().BootID != "" && kept.own(podID) && c.checkGeneric(list) == nil && c.findsLeases(list)
}

// findsLeases reports whether leaseDirs finds all addresses of a generic network: host-local has its own name, and is
// not a plugin of the list.
func (c *CNI) findsLeases(list *libcni.NetworkConfigList) bool {
	return !slices.ContainsFunc(list.Plugins, func(p *libcni.PluginConfig) bool {
		kind, err := c.pluginKind(p.Network.Type)
		return err != nil || kind == hostLocalProgram || p.Network.IPAM.Type != "" && p.Network.IPAM.Type != hostLocal
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
	kept := keptConf{Conf: list.Bytes, BootID: boot, Mark: c.cfg().Mark, StateDir: c.cfg().StateDir}
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
// Teardown and GC free it. It also mends the files of host-local that it has taken, see mendLeases. It looks at each
// network of an earlier boot until that has succeeded once. No pod may be attached meanwhile.
func (c *CNI) Recover() error {
	if c.cfg().BootID == "" {
		return nil
	}
	kept, err := c.earlierConfs()
	if len(kept) == 0 {
		return err
	}
	errs := []error{err}
	recorded, err := c.recordedLeases()
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, k := range kept {
		err := c.recoverNetwork(k, recorded)
		if err == nil { // else the next start tries again
			err = os.Remove(k.path)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// earlierConfs returns the configurations kept in an earlier boot. One that is damaged is moved away.
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
		case errors.Is(err, ErrDamaged) && !errors.Is(err, checkpoint.ErrNewer):
			_, moveErr := checkpoint.Quarantine(k.path, filepath.Join(c.cfg().StateDir, damagedDir))
			errs = append(errs, err, moveErr)
		case err != nil:
			errs = append(errs, err)
		case k.StateDir != c.cfg().StateDir:
			c.log.WithField("file", k.path).Warn("removed the configuration of a network of another state directory")
			errs = append(errs, os.Remove(k.path))
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
func (c *CNI) recoverNetwork(k *keptConf, recorded map[string]string) error {
	errs := []error{c.mend(k, recorded)}
	leases, err := leasesOf(k.list)
	errs = append(errs, err)
	restored := false
	for id, addresses := range leases {
		if !k.own(id) {
			continue
		}
		switch _, err := c.readRecord(id); {
		case errors.Is(err, checkpoint.ErrNewer): // not a loss
		case errors.Is(err, ErrDamaged):
			_, err := checkpoint.Quarantine(c.recordPath(id), filepath.Join(c.cfg().StateDir, damagedDir))
			errs = append(errs, err, c.restore(id, k.list, addresses))
			restored = true
		case errors.Is(err, fs.ErrNotExist):
			errs = append(errs, c.restore(id, k.list, addresses))
			restored = true
		default:
			errs = append(errs, err)
		}
	}
	if restored {
		errs = append(errs, checkpoint.SyncName(k.path))
	}
	return errors.Join(errs...)
}

// mend mends the addresses of a network, and says what it did.
func (c *CNI) mend(k *keptConf, recorded map[string]string) error {
	pods := map[string]bool{}
	for _, pod := range recorded {
		pods[pod] = true
	}
	var errs []error
	for _, dir := range leaseDirs(k.list) {
		m, err := mendLeases(dir, recorded, func(id string) bool { return k.own(id) || pods[id] })
		errs = append(errs, err)
		log := c.log.WithField("directory", dir)
		if len(m.freed) > 0 {
			log.WithField("addresses", strings.Join(m.freed, " ")).
				Warn("freed addresses whose files lost their content when the machine went down")
		}
		if len(m.left) > 0 {
			log.WithField("addresses", strings.Join(m.left, " ")).
				Warn("files of addresses lost their content when the machine went down: remove those that no pod has")
		}
	}
	return errors.Join(errs...)
}

// restore writes the record of a pod anew. SyncName completes that.
func (c *CNI) restore(podID string, list *libcni.NetworkConfigList, addresses []string) error {
	// The namespace ended with the power, and no file has this name.
	lost := Request{PodID: podID, Netns: filepath.Join(c.cfg().NetnsDir, "lost-"+podID)}
	r, err := rebuildRecord(lost, list, addresses)
	if err != nil {
		return err
	}
	slices.Sort(addresses)
	c.log.WithField("pod", podID).WithField("addresses", strings.Join(addresses, " ")).
		Info("network record was lost when the machine went down, restored it from the pod's addresses")
	return checkpoint.Replace(c.recordPath(podID), recordVersion, r)
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
		if err != nil && !errors.Is(err, ErrDamaged) && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err != nil || len(r.Result) == 0 {
			continue
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
