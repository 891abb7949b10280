package main

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

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

	Handlers map[string]HandlerConfig `toml:"handlers" comment:"Runtime handlers, by the name that a RuntimeClass uses. One whose binary is missing is reported as not ready."`
}

// HandlerConfig is one runtime.
type HandlerConfig struct {
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
			Handlers: map[string]HandlerConfig{"runc": {}, "crun": {}, "gvisor": {Path: "runsc"}},
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

// handlerName is what a RuntimeClass may use: a DNS label.
var handlerName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// validate reports everything that is wrong. Origin says who set a key, for the messages.
func (c *Config) validate(origin func(key string) string) error {
	var errs []error
	bad := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s (%s): %w", key, origin(key), fmt.Errorf(format, args...)))
	}
	for _, p := range []struct{ key, path string }{{"root", c.Root}, {"run", c.Run}, {"listen", c.Listen}} {
		if err := checkPath(p.path); err != nil {
			bad(p.key, "%w", err)
		}
	}
	if limit := 107; len(c.Listen) > limit { // sun_path
		bad("listen", "%q is longer than the %d bytes of a unix socket's path", c.Listen, limit)
	}
	if within(c.Root, c.Run) || within(c.Run, c.Root) {
		bad("run", "%q and root %q must not contain each other", c.Run, c.Root)
	}
	errs = append(errs, c.Log.Validate())
	c.Runtime.validate(bad)
	inSection("network", c.Network.Validate(), bad)
	inSection("image", c.Image.Validate(), bad)
	inSection("streaming", c.Streaming.Validate(), bad)
	inSection("metrics", c.Metrics.Validate(), bad)
	inSection("tracing", c.Tracing.Validate(), bad)
	if path := c.Metrics.SocketPath(); path != "" && path == c.Listen {
		bad("metrics.address", "%q is the socket of the CRI service", path)
	}
	return errors.Join(errs...)
}

// inSection passes on what a package says of its Config, "key: what is wrong" for each mistake, with the name of
// the section that the Config is in here.
func inSection(section string, err error, bad func(key, format string, args ...any)) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			inSection(section, e, bad)
		}
		return
	}
	if err == nil {
		return
	}
	if key, what, ok := strings.Cut(err.Error(), ": "); ok {
		bad(section+"."+key, "%s", what)
		return
	}
	bad(section, "%w", err)
}

func (c *RuntimeConfig) validate(bad func(key, format string, args ...any)) {
	inSection("runtime", c.Config.Validate(), bad)
	switch c.CgroupDriver {
	case cgroupAuto, cgroupSystemd, cgroupCgroupfs:
	default:
		bad("runtime.cgroup_driver", "%q is none of auto, systemd, cgroupfs", c.CgroupDriver)
	}
	if err := checkProgram(c.Conmon); err != nil {
		bad("runtime.conmon", "%w", err)
	}
	for _, dir := range c.SearchPath {
		if err := checkPath(dir); err != nil {
			bad("runtime.search_path", "%w", err)
		}
	}
	c.validateRouting(bad)
	for _, name := range slices.Sorted(maps.Keys(c.Handlers)) {
		c.Handlers[name].validate("runtime.handlers."+name, name, bad)
	}
}

// validateRouting wants every handler that pods are sent to to be there.
func (c *RuntimeConfig) validateRouting(bad func(key, format string, args ...any)) {
	known := func(key, handler string) {
		if _, ok := c.Handlers[handler]; !ok {
			bad(key, "there is no handler %q", handler)
		}
	}
	known("runtime.default_handler", c.DefaultHandler)
	if c.HostAccessHandler != "" {
		known("runtime.host_access_runtime", c.HostAccessHandler)
	}
	for _, annotation := range slices.Sorted(maps.Keys(c.AnnotationHandlers)) {
		known("runtime.annotation_handlers", c.AnnotationHandlers[annotation])
	}
}

func (h HandlerConfig) validateType(key string, bad func(key, format string, args ...any)) {
	switch h.Type {
	case "", typeOCI:
		if h.Runtime != "" || h.ConfigPath != "" {
			bad(key, "runtime and config_path are for handlers of type shim")
		}
	case typeShim:
		if h.Runtime != "" {
			if err := checkProgram(h.Runtime); err != nil {
				bad(key+".runtime", "%w", err)
			}
		}
		if h.ConfigPath != "" {
			if err := checkPath(h.ConfigPath); err != nil {
				bad(key+".config_path", "%w", err)
			}
		}
	default:
		bad(key+".type", "%q is none of oci, shim", h.Type)
	}
}

// optionName is what a runtime's flag may be called.
var optionName = regexp.MustCompile(`^[a-zA-Z0-9][-_a-zA-Z0-9]*$`)

// reservedOptions are the flags that podd sets itself.
var reservedOptions = []string{"root", "systemd-cgroup", "log", "log-format"}

// engine is what the engine must know of the handler.
func (h HandlerConfig) engine() sandbox.HandlerConfig {
	return sandbox.HandlerConfig{
		CNIConfDir: h.CNIConfDir, Infra: h.Infra, AllowedAnnotations: h.AllowedAnnotations, DefaultAnnotations: h.DefaultAnnotations,
	}
}

func (h HandlerConfig) validate(key, name string, bad func(key, format string, args ...any)) {
	if !handlerName.MatchString(name) {
		bad(key, "%q is not a DNS label (a-z, 0-9, -), which a RuntimeClass's handler must be", name)
	}
	if h.Path != "" {
		if err := checkProgram(h.Path); err != nil {
			bad(key+".path", "%w", err)
		}
	}
	h.validateType(key, bad)
	for _, option := range slices.Sorted(maps.Keys(h.Options)) {
		if !optionName.MatchString(option) || slices.Contains(reservedOptions, option) {
			bad(key+".options", "%q is not the name of a flag, or one that podd sets itself", option)
		}
	}
	inSection(key, h.engine().Validate(), bad)
	for _, dir := range []struct{ key, path string }{{".root", h.Root}, {".cni_conf_dir", h.CNIConfDir}} {
		if dir.path == "" {
			continue
		}
		if err := checkPath(dir.path); err != nil {
			bad(key+dir.key, "%w", err)
		}
	}
}

// checkPath wants an absolute path without detours: paths are compared with what the kernel reports.
func checkPath(path string) error {
	switch {
	case path == "":
		return errors.New("is empty, want an absolute path")
	case !filepath.IsAbs(path):
		return fmt.Errorf("%q is relative, want an absolute path", path)
	case path != filepath.Clean(path):
		return fmt.Errorf("%q is not in its shortest form, %q", path, filepath.Clean(path))
	case path == "/":
		return errors.New("must not be the root directory")
	case strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return fmt.Errorf("%q holds a control character", path)
	}
	return nil
}

// checkProgram wants an absolute path or a bare name.
func checkProgram(program string) error {
	if program != "" && !strings.Contains(program, "/") && program != "." && program != ".." {
		return nil
	}
	return checkPath(program)
}

// within is true when path is dir or below it.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}
