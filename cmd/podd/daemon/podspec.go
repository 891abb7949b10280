package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/sandbox/record"
	"github.com/podd-project/podd/server"
)

// specReader returns a function that reads the config.json of a container in dir. The ids it is called with come from
// records.
func specReader(dir string) server.SpecReader {
	return func(id string) (*specs.Spec, error) {
		data, err := os.ReadFile(filepath.Join(dir, id, "config.json"))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: container %s has no config.json", errdefs.ErrNotFound, id)
		}
		if err != nil {
			return nil, fmt.Errorf("read config.json: %w", err)
		}
		config := &specs.Spec{}
		if err := json.Unmarshal(data, config); err != nil {
			return nil, fmt.Errorf("read config.json of %s: %w", id, err)
		}
		return config, nil
	}
}

// podSpecReader returns a function that returns the config.json of a pod's infra container. For a pod that has none it
// returns one with the pod's pinned namespaces, which tools use to enter the pod.
func podSpecReader(read server.SpecReader, paths record.Layout) func(*record.Pod) (*specs.Spec, error) {
	return func(p *record.Pod) (*specs.Spec, error) {
		if p.HasInfra() {
			return read(p.ID)
		}
		s := &specs.Spec{Version: specs.Version, Hostname: p.Config.GetHostname(), Linux: &specs.Linux{}}
		pins := paths.Pins(p.ID)
		for _, ns := range []specs.LinuxNamespace{
			{Type: specs.NetworkNamespace, Path: p.Netns}, {Type: specs.IPCNamespace, Path: pins.IPC},
			{Type: specs.UTSNamespace, Path: pins.UTS}, {Type: specs.UserNamespace, Path: pins.User},
		} {
			_, err := os.Lstat(ns.Path)
			switch {
			case err == nil:
				s.Linux.Namespaces = append(s.Linux.Namespaces, ns)
			case ns.Path != "" && !errors.Is(err, fs.ErrNotExist):
				return nil, err
			}
		}
		return s, nil
	}
}
