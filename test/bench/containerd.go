package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// containerdConfig is a package's configuration with private paths, and with restrict_oom_score_adj for machines
// without CAP_SYS_RESOURCE. The parameters are directory, plugins, network configuration, runc, crun.
const containerdConfig = `version = 3
root = "%[1]s/root"
state = "%[1]s/run/state"

[grpc]
address = "%[1]s/cri.sock"

[plugins."io.containerd.internal.v1.opt"]
path = "%[1]s/opt"

[plugins."io.containerd.nri.v1.nri"]
disable = true

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "registry.k8s.io/pause:3.10"

[plugins."io.containerd.cri.v1.images".registry]
config_path = "%[1]s/certs.d"

[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["%[2]s"]
conf_dir = "%[3]s"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "%[4]s"
Root = "%[1]s/run/runc"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.crun]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.crun.options]
BinaryName = "%[5]s"
Root = "%[1]s/run/crun"
`

func startContainerd(ctx context.Context, h peerHost) (*server, error) {
	s, p, err := newPeer("containerd", "cri.sock", func(dir string) error {
		config := fmt.Sprintf(containerdConfig, dir, filepath.Join(h.tools, "cni"), h.cni, h.programPath("runc"),
			h.programPath("crun"))
		if err := os.WriteFile(filepath.Join(dir, "config.toml"), []byte(config), 0o644); err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Join(dir, "certs.d", "_default"), 0o755); err != nil {
			return err
		}
		hosts := fmt.Sprintf("server = \"http://%[1]s\"\n[host.\"http://%[1]s\"]\ncapabilities = [\"pull\", \"resolve\"]\n",
			h.registry.Addr)
		return os.WriteFile(filepath.Join(dir, "certs.d", "_default", "hosts.toml"), []byte(hosts), 0o644)
	})
	if err != nil {
		return s, err
	}
	p.binary, p.args = filepath.Join(h.bin, "containerd"), []string{"--config", filepath.Join(p.dir, "config.toml")}
	p.env = []string{"PATH=" + h.bin + ":" + h.tools + ":" + os.Getenv("PATH")} // it looks for its shim there
	return s, p.Start(ctx)
}
