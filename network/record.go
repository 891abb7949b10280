package network

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"golang.org/x/sync/errgroup"

	"github.com/podd-project/podd/checkpoint"
)

// recordVersion is the format of attachment records; see README.md.
const recordVersion = 1

const recordSuffix = ".json"

// record is one attachment: all arguments that DEL needs. It is written before the first plugin runs.
type record struct {
	PodID string `json:"podID"`
	// Netns is the network namespace's path at ADD. It may be gone at DEL.
	Netns string `json:"netns"`
	// Conf is the configuration that ADD used; its file may have changed since.
	Conf json.RawMessage `json:"conf"`
	// ConfDir is Request.ConfDir.
	ConfDir string `json:"confDir,omitempty"`
	// Args are the pairs of CNI_ARGS.
	Args [][2]string `json:"args"`
	// Capabilities are the capability arguments, before libcni selected those that each plugin declares.
	Capabilities map[string]any `json:"capabilities,omitempty"`
	// Result is the result of the last plugin that succeeded so far: prevResult for DEL.
	Result json.RawMessage `json:"result,omitempty"`
	// Failed is true if ADD of one of the plugins failed.
	Failed bool `json:"failed,omitempty"`

	list  *libcni.NetworkConfigList // Conf, parsed
	syncs errgroup.Group            // of writeRecord
}

func newRecord(r Request, list *libcni.NetworkConfigList) *record {
	return &record{
		PodID: r.PodID, Netns: r.Netns, Conf: list.Bytes, ConfDir: r.ConfDir, Args: r.cniArgs(),
		Capabilities: r.capabilities(), list: list,
	}
}

// runtimeConf converts the record for libcni. netns is the current path of the namespace, "" if it is gone.
func (r *record) runtimeConf(netns string) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID: r.PodID, NetNS: netns, IfName: ifName, Args: r.Args, CapabilityArgs: r.Capabilities,
	}
}

// check validates and parses a record from disk. The checksum shows that podd wrote it, not that it is valid.
func (r *record) check(podID string) error {
	if r.PodID != podID {
		return fmt.Errorf("is the record of pod %.80q", r.PodID)
	}
	if !filepath.IsAbs(r.Netns) || strings.ContainsRune(r.Netns, 0) {
		return fmt.Errorf("network namespace %.80q is not an absolute path", r.Netns)
	}
	for _, pair := range r.Args {
		if strings.ContainsAny(pair[0]+pair[1], ";=\x00\n") {
			return fmt.Errorf("CNI argument %.80q has a separator or control character", pair)
		}
	}
	if len(r.Result) > 0 {
		if _, err := decodeResult(r.Result); err != nil {
			return err
		}
	}
	list, err := parseConf(r.Conf)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	r.list, err = flatten(list)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	return nil
}

func (c *CNI) recordPath(podID string) string {
	return filepath.Join(c.stateDir, podID+recordSuffix)
}

// writeRecord writes r and starts to sync it: r.syncs.Wait ends that. kill -9 loses nothing that is written.
//
// Until the sync has ended, a power failure can empty the record, which Abandon handles, or remove its name. A
// filesystem with a journal keeps the order of names: if an address survives that a plugin has allocated on the same
// filesystem, so does the record's name.
func (c *CNI) writeRecord(r *record) error {
	path := c.recordPath(r.PodID)
	if err := checkpoint.WriteUnsynced(path, recordVersion, r); err != nil {
		return err
	}
	r.syncs.Go(func() error { return c.sync(path) })
	return nil
}

// readRecord reads a pod's record; fs.ErrNotExist if it has none. Every other error names the file.
func (c *CNI) readRecord(podID string) (*record, error) {
	path := c.recordPath(podID)
	r := &record{}
	if err := checkpoint.Read(path, recordVersion, r); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if checkpoint.IsPermanent(err) {
			err = fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		return nil, fmt.Errorf("network attachment %s: %w", path, err)
	}
	if err := r.check(podID); err != nil {
		return nil, fmt.Errorf("network attachment %s: %w: %w", path, ErrDamaged, err)
	}
	return r, nil
}

func (c *CNI) removeRecord(podID string) error {
	// The record last: without it the lock would not be found.
	for _, path := range []string{c.delLockPath(podID), c.recordPath(podID)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove network attachment: %w", err)
		}
	}
	return nil
}

// Attachments returns the ids of the pods that have a record, readable or not, sorted.
func (c *CNI) Attachments() ([]string, error) {
	entries, err := os.ReadDir(c.stateDir)
	if err != nil {
		return nil, fmt.Errorf("list network attachments: %w", err)
	}
	var ids []string
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), recordSuffix)
		if ok && !e.IsDir() && checkPodID(id) == nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids) // the directory is sorted by names with suffix
	return ids, nil
}
