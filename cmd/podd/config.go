package main

import (
	"path/filepath"

	"github.com/podd-project/podd/cmd/podd/metrics"
	"github.com/podd-project/podd/cmd/podd/tomlconfig"
	"github.com/podd-project/podd/cmd/podd/tracing"
	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/network"
	"github.com/podd-project/podd/sandbox"
	"github.com/podd-project/podd/streaming"
)

// Config is the configuration file: each package's own Config in a section, and what belongs to the process.
type Config struct {
	Root   string `toml:"root" comment:"Directory of everything that outlives a reboot: records, images, container file systems."`
	Run    string `toml:"run" comment:"Directory of everything that does not outlive a reboot: sockets, namespaces, bundles. Should be a tmpfs."`
	Listen string `toml:"listen" comment:"Unix socket of the CRI service. Unless set, podd.sock in the directory run."`

	Log     LogConfig      `toml:"log"`
	Runtime RuntimeConfig  `toml:"runtime" comment:"How containers are run."`
	Network network.Config `toml:"network" comment:"The pod network, which CNI plugins make."`
	Image   image.Config   `toml:"image" comment:"Where images come from and how they are kept."`

	Streaming streaming.Config `toml:"streaming" comment:"The HTTP server that kubectl exec, attach and port-forward come to, by way of the kubelet."`
	Metrics   metrics.Config   `toml:"metrics" comment:"podd's own metrics, for Prometheus; the CRI's metrics of pods come by way of the kubelet."`
	Tracing   tracing.Config   `toml:"tracing" comment:"Spans of what podd does, for OpenTelemetry."`
}

// RuntimeConfig is the engine's configuration and the handlers it chooses from.
type RuntimeConfig struct {
	sandbox.Config
	CgroupDriver string   `toml:"cgroup_driver" comment:"Who makes cgroups: systemd, cgroupfs, or auto (systemd where it is process 1). The kubelet asks podd which it is."`
	Conmon       string   `toml:"conmon" comment:"Monitor of each container: a path, or a name that is looked up in search_path."`
	SearchPath   []string `toml:"search_path" comment:"Directories where conmon and runtimes given by name are looked up, in this order."`

	Handlers map[string]HandlerTable `toml:"handlers" comment:"Runtime handlers, by the name that a RuntimeClass uses. One whose binary is missing is reported as not ready."`
}

// HandlerTable is one table [runtime.handlers.NAME].
type HandlerTable struct {
	Type       string `toml:"type" comment:"How the runtime is driven. oci: by conmon, as an OCI runtime (runc, crun, runsc). shim: as a containerd shim (containerd-shim-runsc-v1, containerd-shim-kata-v2). Empty: oci."`
	Path       string `toml:"path" comment:"The runtime or shim: a path, or a name that is looked up in search_path. Empty: the handler's name, for a shim containerd-shim-, the handler's name and -v2."`
	Runtime    string `toml:"runtime" comment:"Shims only: the runtime that the shim runs, a path or a name that is looked up in search_path (runsc). Empty: runsc for gVisor's shim, others know."`
	ConfigPath string `toml:"config_path" comment:"Shims only: the configuration file of the shim or its runtime (Kata's configuration.toml). With it, options are not used."`
	Root       string `toml:"root" comment:"The runtime's own state directory. Empty: a directory of the handler's name in run."`
	CNIConfDir string `toml:"cni_conf_dir" comment:"CNI configuration for pods of this handler. Empty: that of section network."`
	Infra      string `toml:"infra" comment:"Which pods have an infra container, podd's own pause process. auto: those that share a PID namespace, and all of a runtime with a kernel of its own. pause: all. none: only those that share a PID namespace. Empty: auto."`

	Options            map[string]string `toml:"options" comment:"Global flags of the runtime, by name: platform = \"systrap\" is --platform=systrap. For other shims than gVisor's, the shim's options as in containerd's configuration."`
	AllowedAnnotations []string          `toml:"allowed_annotations" comment:"Pod annotations that are passed to the runtime, by name, or by the beginning of a name and a *. Runtimes take annotations for configuration: allow none that a pod must not decide."`
	DefaultAnnotations map[string]string `toml:"default_annotations" comment:"Annotations that the runtime gets with every container. Allowed annotations of the pod win over them."`
}

// Values of a handler's type; "" is typeOCI.
const (
	typeOCI  = "oci"
	typeShim = "shim"
)

// Values of cgroup_driver.
const (
	cgroupAuto     = "auto"
	cgroupSystemd  = "systemd"
	cgroupCgroupfs = "cgroupfs"
)

// defaultConfig is what podd runs with when no file says otherwise.
func defaultConfig() Config {
	return Config{
		Root:   "/var/lib/podd",
		Run:    "/run/podd",
		Listen: "/run/podd/podd.sock",
		Log:    LogConfig{Level: "info", Format: "text"},
		Runtime: RuntimeConfig{
			Config:       sandbox.DefaultConfig(),
			CgroupDriver: cgroupAuto,
			Conmon:       "conmon",
			SearchPath: []string{
				"/usr/libexec/podd", "/usr/local/libexec/podd", "/usr/local/sbin", "/usr/local/bin",
				"/usr/sbin", "/usr/bin", "/sbin", "/bin", "/opt/podd/bin", "/opt/bin",
			},
			Handlers: map[string]HandlerTable{"runc": {}, "crun": {}, "gvisor": {Path: "runsc"}},
		},
		Network: network.DefaultConfig(),
		Image:   image.DefaultConfig(),

		Streaming: streaming.DefaultConfig(),
		Tracing:   tracing.DefaultConfig(),
	}
}

// complete fills in what follows from other keys and was not set by anyone.
func (c *Config) complete(set *tomlconfig.Set) {
	if set.Origin("listen") == tomlconfig.Default {
		c.Listen = filepath.Join(c.Run, "podd.sock")
	}
	if set.Origin("image.preload_dir") == tomlconfig.Default {
		c.Image.PreloadDir = filepath.Join(c.Root, "preload")
	}
	c.place(c.Root, c.Run)
}

// place puts the packages' state below the two directories, see design of the state on disk in README.md.
func (c *Config) place(root, run string) {
	c.Root, c.Run = root, run
	c.Runtime.Root, c.Runtime.Run = root, run
	c.Network.StateDir = filepath.Join(root, "network")
	c.Image.Root, c.Image.RunRoot = filepath.Join(root, "storage"), filepath.Join(run, "storage")
}

// engine returns the part of the table that the engine uses.
func (h HandlerTable) engine() sandbox.HandlerConfig {
	return sandbox.HandlerConfig{
		CNIConfDir: h.CNIConfDir, Infra: h.Infra,
		AllowedAnnotations: h.AllowedAnnotations, DefaultAnnotations: h.DefaultAnnotations,
	}
}
