package network

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/utils"
	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"
)

// Bounds of a configuration: bytes of a file, and nesting depth of its JSON, which is indented in a record.
const (
	maxConf    = 256 << 10
	maxNesting = 64
)

// brokenConf is a configuration file that was skipped.
type brokenConf struct {
	path string
	err  error
}

// loadConf returns the network configured in dir and its file: the first valid one by name, as in every runtime.
// Invalid files before it are returned too. Without a valid file the error is errdefs.ErrUnavailable with the reasons.
//
// The directory is read whenever it is needed: a pod gets its current content, whatever events were received.
func loadConf(dir string) (list *libcni.NetworkConfigList, path string, broken []brokenConf, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, "", nil, fmt.Errorf("%w: read CNI configuration: %w", errdefs.ErrUnavailable, err)
	}
	for _, e := range entries { // sorted by name
		if !confName(e.Name()) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		list, err := readConf(path)
		if err == nil {
			return list, path, broken, nil
		}
		broken = append(broken, brokenConf{path, err})
	}
	if len(broken) == 0 {
		return nil, "", nil, fmt.Errorf("%w: no CNI configuration in %s", errdefs.ErrUnavailable, dir)
	}
	reasons := make([]string, len(broken))
	for i, b := range broken {
		reasons[i] = fmt.Sprintf("%s: %v", filepath.Base(b.path), b.err)
	}
	return nil, "", broken, fmt.Errorf("%w: no valid CNI configuration in %s: %s",
		errdefs.ErrUnavailable, dir, strings.Join(reasons, "; "))
}

// confName reports whether a file of this name is a configuration. A leading dot marks one that is being written.
func confName(name string) bool {
	return !strings.HasPrefix(name, ".") && slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(name))
}

// errNoPlugins is also the error of a network whose plugins have files that are not written yet.
var errNoPlugins = errors.New("lists no plugins")

func readConf(path string) (*libcni.NetworkConfigList, error) {
	data, err := readCapped(path)
	if err != nil {
		return nil, err
	}
	list, err := parseConf(data)
	if err != nil {
		return nil, err
	}
	if !list.LoadOnlyInlinedPlugins {
		// CNI 1.1: further plugins may have files of their own, in a directory named after the network.
		more, err := libcni.NetworkPluginConfsFromFiles(filepath.Dir(path), list.Name)
		if err != nil {
			return nil, err
		}
		list.Plugins = append(list.Plugins, more...)
	}
	return flatten(list)
}

func readCapped(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // do not wait for the other end of a FIFO
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxConf+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxConf {
		return nil, fmt.Errorf("larger than %d bytes", maxConf)
	}
	return data, nil
}

// parseConf parses a list of plugins, or a single plugin of the old format as a list of one. The result has a safe name
// and version, but may have no plugins yet.
func parseConf(data []byte) (*libcni.NetworkConfigList, error) {
	if err := checkNesting(data); err != nil {
		return nil, err
	}
	var probe struct {
		Name       string          `json:"name"`
		CNIVersion string          `json:"cniVersion"`
		Type       string          `json:"type"`
		Plugins    json.RawMessage `json:"plugins"`
	}
	if err := json.Unmarshal(data, &probe); err != nil {
		return nil, err
	}
	if probe.Type != "" && probe.Plugins == nil {
		wrapped, err := json.Marshal(confList{
			Name: probe.Name, CNIVersion: probe.CNIVersion, Inlined: true, Plugins: []json.RawMessage{data},
		})
		if err != nil {
			return nil, err
		}
		data = wrapped
	}
	list, err := libcni.NetworkConfFromBytes(data)
	if err != nil {
		return nil, err
	}
	if err := utils.ValidateNetworkName(list.Name); err != nil {
		return nil, err
	}
	newer, err := version.GreaterThan(list.CNIVersion, version.Current())
	if err != nil {
		return nil, fmt.Errorf("cniVersion %q: %w", list.CNIVersion, err)
	}
	if newer {
		return nil, fmt.Errorf("cniVersion %q is newer than %s", list.CNIVersion, version.Current())
	}
	return list, nil
}

// confList is the format of a configuration in a record: it contains everything that libcni read from several files, so
// nothing else needs to be loaded.
type confList struct {
	CNIVersion   string            `json:"cniVersion"`
	Name         string            `json:"name"`
	DisableCheck bool              `json:"disableCheck,omitempty"`
	DisableGC    bool              `json:"disableGC,omitempty"`
	Inlined      bool              `json:"loadOnlyInlinedPlugins"`
	Plugins      []json.RawMessage `json:"plugins"`
}

// flatten checks the plugins of list and sets its Bytes to the complete configuration.
func flatten(list *libcni.NetworkConfigList) (*libcni.NetworkConfigList, error) {
	if len(list.Plugins) == 0 {
		return nil, errNoPlugins
	}
	flat := confList{
		CNIVersion: list.CNIVersion, Name: list.Name, DisableCheck: list.DisableCheck, DisableGC: list.DisableGC,
		Inlined: true,
	}
	for _, p := range list.Plugins {
		for _, name := range []string{p.Network.Type, p.Network.IPAM.Type} {
			if err := checkPluginName(name); err != nil && name != "" {
				return nil, err
			}
		}
		flat.Plugins = append(flat.Plugins, p.Bytes)
	}
	data, err := json.Marshal(flat)
	if err != nil {
		return nil, err
	}
	if err := checkNesting(data); err != nil {
		return nil, err
	}
	list.Bytes, list.LoadOnlyInlinedPlugins = data, true
	return list, nil
}

// checkNesting bounds the nesting of arrays and objects in a JSON text. The parser checks the syntax.
func checkNesting(data []byte) error {
	depth, quoted := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > maxNesting {
				return fmt.Errorf("JSON nested deeper than %d", maxNesting)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

// atLeast reports whether the network's CNI version is v or later.
func atLeast(list *libcni.NetworkConfigList, v string) bool {
	ok, err := version.GreaterThanOrEqualTo(list.CNIVersion, v)
	return err == nil && ok
}
