// Package settings reads podd's configuration: files, drop-ins, flags; their keys and defaults; which values are wrong;
// which keys a reload can change; and the configurations of the drivers of the runtime handlers. It knows neither
// commands nor the daemon, which both call it, and opens only the configuration's files and base_runtime_spec.
package settings

import (
	"path/filepath"
	"strings"

	"github.com/podd-project/podd/cmd/podd/cadvisor"
	"github.com/podd-project/podd/cmd/podd/metrics"
	"github.com/podd-project/podd/cmd/podd/tomlconfig"
	"github.com/podd-project/podd/cmd/podd/tracing"
	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/network"
	"github.com/podd-project/podd/sandbox"
	"github.com/podd-project/podd/sandbox/nri"
	"github.com/podd-project/podd/streaming"
)

// Config is the configuration file: a section with the Config of each package, and the keys of the process.
type Config struct {
	Root   string `toml:"root" comment:"Directory of the state that outlives a reboot: records, images, root filesystems of containers."`
	Run    string `toml:"run" comment:"Directory of the state that does not outlive a reboot: sockets, namespaces, bundles. Should be a tmpfs."`
	Listen string `toml:"listen" comment:"Unix socket of the CRI service. Unless set: podd.sock in the directory run."`

	Log     LogConfig      `toml:"log"`
	Runtime RuntimeConfig  `toml:"runtime" comment:"How pods and containers are run."`
	NRI     nri.Config     `toml:"nri" comment:"Plugins of the node (NRI)."`
	Network network.Config `toml:"network" comment:"The pod network, set up by CNI plugins."`
	Image   image.Config   `toml:"image" comment:"Where images are pulled from and how they are stored."`

	Streaming streaming.Config `toml:"streaming" comment:"The HTTP server for exec, attach and port-forward. Clients reach it through the kubelet."`
	Metrics   metrics.Config   `toml:"metrics" comment:"podd's own metrics, for Prometheus. The CRI's metrics of pods are served through the kubelet."`
	Cadvisor  cadvisor.Config  `toml:"cadvisor" comment:"Names for the containers in the metrics of the kubelet's cAdvisor."`
	Tracing   tracing.Config   `toml:"tracing" comment:"OpenTelemetry spans of the calls that podd serves."`
}

// RuntimeConfig is the [runtime] section: the engine's configuration and the handlers.
type RuntimeConfig struct {
	sandbox.Config
	CgroupDriver string   `toml:"cgroup_driver" comment:"Cgroup driver: systemd, cgroupfs, or auto (systemd if it is process 1). The kubelet asks podd and uses the same."`
	Conmon       string   `toml:"conmon" comment:"Path of conmon, the monitor of each container, or a name that is looked up in search_path. A statically linked one (contrib/conmon.sh) takes less memory and processor time for each container."`
	CRIU         string   `toml:"criu" comment:"Path of criu (4.2.1 or later), with which containers of runc are checkpointed, or a name that is looked up in search_path. The file must have the name criu. Without it everything else works. Empty: podd does not look for it."`
	ExecCgroups  bool     `toml:"exec_cgroups" comment:"Run each command (exec) in a separate cgroup with the id of the CRI call in its name, for programs that watch processes; else only those with a timeout. With cgroup v2, programs in it do not see the limits of their container."`
	SearchPath   []string `toml:"search_path" comment:"Directories in which conmon, criu and runtimes without a path are looked up, in this order."`

	Handlers map[string]HandlerTable `toml:"handlers" comment:"Runtime handlers, by the name that a RuntimeClass selects. A handler whose binary is missing is reported as not ready."`
}

// HandlerTable is one table [runtime.handlers.NAME].
type HandlerTable struct {
	Type       string `toml:"type" comment:"How podd drives the runtime. oci: as an OCI runtime, under conmon (runc, crun, runsc). shim: as a containerd shim (containerd-shim-runsc-v1, containerd-shim-kata-v2). Empty: oci."`
	Path       string `toml:"path" comment:"Path of the runtime or shim, or a name that is looked up in search_path. Empty: NAME for a runtime, containerd-shim-NAME-v2 for a shim, where NAME is the name of the handler."`
	Runtime    string `toml:"runtime" comment:"Only for type shim: path of the runtime that the shim runs, or a name that is looked up in search_path. Empty: runsc for gVisor's shim, the shim's own default for others."`
	ConfigPath string `toml:"config_path" comment:"Only for type shim: configuration file of the shim or its runtime (Kata: configuration.toml). If set, options are ignored."`
	Root       string `toml:"root" comment:"State directory of the runtime. Empty: runtimes/NAME in the directory run."`
	CNIConfDir string `toml:"cni_conf_dir" comment:"Directory of CNI configurations for pods of this handler. Empty: network.conf_dir."`
	Infra      string `toml:"infra" comment:"Which pods get an infra container, which runs podd's own pause process. auto: pods that share a PID namespace, and all pods if the runtime has its own kernel. pause: all pods. none: only pods that share a PID namespace. Empty: auto."`

	PrivilegedWithoutHostDevices string `toml:"privileged_without_host_devices" comment:"Whether privileged containers do without the devices of the node: auto (if the runtime has its own kernel), true or false. Empty: auto."`

	WritableCgroups bool `toml:"writable_cgroups" comment:"Whether containers in a user namespace (hostUsers: false) may make cgroups below their own at /sys/fs/cgroup, as systemd does: 1,000 at most, and none of their own limits can be changed. On cgroup v2, with runc and the systemd cgroup driver. The cgroups of others are read-only, unless they are privileged."`

	BaseRuntimeSpec string `toml:"base_runtime_spec" comment:"File with defaults of the handler's containers, in the format of config.json (containerd's key of that name). Used of it: process.env, process.rlimits, process.capabilities.bounding, process.user.umask, root.readonly, mounts, hooks and linux.resources.pids, .blockIO and .rdma. They take precedence over the keys of [runtime]; image and CRI take precedence over them. podd sets everything else, and refuses a file with other settings that would be lost, such as a seccomp profile."`

	Options            map[string]string `toml:"options" comment:"Global flags of the runtime, by name: platform = \"systrap\" is --platform=systrap. For shims other than gVisor's: the shim's options, named as in containerd's configuration."`
	AllowedAnnotations []string          `toml:"allowed_annotations" comment:"Pod annotations that are passed to the runtime: names, or prefixes followed by *. Annotations can change the configuration of a runtime: allow only those that any pod may set."`
	DefaultAnnotations map[string]string `toml:"default_annotations" comment:"Annotations that are passed to the runtime with every container. Allowed annotations of the pod override them."`
}

// Values of a handler's type; "" is TypeOCI.
const (
	TypeOCI  = "oci"
	TypeShim = "shim"
)

// Values of cgroup_driver.
const (
	CgroupAuto     = "auto"
	CgroupSystemd  = "systemd"
	CgroupCgroupfs = "cgroupfs"
)

// Default returns the default of every key.
func Default() Config {
	return Config{
		Root:   "/var/lib/podd",
		Run:    "/run/podd",
		Listen: "/run/podd/podd.sock",
		Log:    LogConfig{Level: "info", Format: "text"},
		Runtime: RuntimeConfig{
			Config:       sandbox.DefaultConfig(),
			CgroupDriver: CgroupAuto,
			Conmon:       "conmon",
			CRIU:         "criu",
			SearchPath: []string{
				"/usr/libexec/podd", "/usr/local/libexec/podd", "/usr/local/sbin", "/usr/local/bin",
				"/usr/sbin", "/usr/bin", "/sbin", "/bin", "/opt/podd/bin", "/opt/bin",
			},
			Handlers: map[string]HandlerTable{"runc": {}, "crun": {}, "gvisor": {Path: "runsc"}},
		},
		NRI:     nri.DefaultConfig(),
		Network: network.DefaultConfig(),
		Image:   image.DefaultConfig(),

		Streaming: streaming.DefaultConfig(),
		Metrics:   metrics.DefaultConfig(),
		Tracing:   tracing.DefaultConfig(),
	}
}

// complete sets keys whose defaults depend on other keys, unless a file or flag set them.
func (c *Config) complete(set *tomlconfig.Set) {
	c.Listen = strings.TrimPrefix(c.Listen, "unix://") // as the kubelet and crictl want it
	if set.Origin("listen") == tomlconfig.Default {
		c.Listen = filepath.Join(c.Run, "podd.sock")
	}
	if set.Origin("image.preload_dir") == tomlconfig.Default {
		c.Image.PreloadDir = filepath.Join(c.Root, "preload")
	}
	if set.Origin("network.netns_dir") == tomlconfig.Default && c.Run != Default().Run {
		c.Network.NetnsDir = filepath.Join(c.Run, "netns")
	}
	if set.Origin("nri.socket") == tomlconfig.Default && c.Run != Default().Run {
		c.NRI.Socket = filepath.Join(c.Run, "nri", "nri.sock")
	}
	if set.Origin("metrics.address") == tomlconfig.Default {
		c.Metrics.Address = metrics.SocketAddress(c.Run)
	}
}
