package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// crioConfig has private paths and the others' cgroup driver. The parameters are directory, plugins, network
// configuration, runc, crun, directory of pinns, conmon.
const crioConfig = `[crio]
root = "%[1]s/storage"
runroot = "%[1]s/run/runroot"
storage_driver = "overlay"
log_dir = "%[1]s/logs"
version_file = "%[1]s/version"
version_file_persist = ""
clean_shutdown_file = "%[1]s/clean"
internal_wipe = false

[crio.api]
listen = "%[1]s/cri.sock"
stream_address = "127.0.0.1"
stream_port = "0"

[crio.runtime]
default_runtime = "runc"
cgroup_manager = "cgroupfs"
namespaces_dir = "%[1]s/run/ns"
container_exits_dir = "%[1]s/run/exits"
container_attach_socket_dir = "%[1]s/run/attach"
pinns_path = "%[6]s/pinns"
enable_criu_support = false

[crio.runtime.runtimes.runc]
runtime_path = "%[4]s"
runtime_root = "%[1]s/run/runc"
monitor_path = "%[7]s"
monitor_cgroup = "pod"

[crio.runtime.runtimes.crun]
runtime_path = "%[5]s"
runtime_root = "%[1]s/run/crun"
monitor_path = "%[7]s"
monitor_cgroup = "pod"

[crio.image]
pause_image = "registry.k8s.io/pause:3.10"
signature_policy = "%[1]s/policy.json"

[crio.network]
network_dir = "%[3]s"
plugin_dirs = ["%[2]s"]

[crio.nri]
enable_nri = false
`

func startCRIO(ctx context.Context, h peerHost) (*server, error) {
	var registries string
	s, p, err := newPeer("cri-o", "cri.sock", func(dir string) (err error) {
		if registries, _, err = h.registry.WriteConf(dir); err != nil {
			return err
		}
		config := fmt.Sprintf(crioConfig, dir, filepath.Join(h.tools, "cni"), h.cni, h.programPath("runc"),
			h.programPath("crun"), h.bin, h.programPath("conmon"))
		return os.WriteFile(filepath.Join(dir, "crio.conf"), []byte(config), 0o644)
	})
	if err != nil {
		return s, err
	}
	p.binary, p.args = filepath.Join(h.bin, "crio"), []string{"--config", filepath.Join(p.dir, "crio.conf"),
		"--config-dir", "", "--registries-conf", registries}
	return s, p.Start(ctx)
}
