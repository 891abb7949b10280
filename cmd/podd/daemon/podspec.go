package daemon

import (
	"errors"
	"io/fs"
	"os"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/sandbox/record"
	"github.com/podd-project/podd/server"
)

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
