package settings

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/podd-project/podd/oci/runc"
	"github.com/podd-project/podd/oci/shim"
	"github.com/podd-project/podd/oci/spec/host"
	"github.com/podd-project/podd/sandbox/handler"
)

// ShimConfig returns the configuration of the handler h of that name, which is a shim.
func (c *Config) ShimConfig(name string, h HandlerTable) shim.Config {
	r := c.Runtime
	return shim.Config{
		Name:          name,
		Path:          cmp.Or(h.Path, "containerd-shim-"+name+"-v2"),
		SearchPath:    r.SearchPath,
		Root:          cmp.Or(h.Root, filepath.Join(c.Run, "runtimes", name)),
		RunDir:        c.ContainersDir(),
		Runtime:       h.shimRuntime(),
		ConfigPath:    h.ConfigPath,
		Options:       h.shimOptions(),
		SystemdCgroup: UseSystemdCgroup(r.CgroupDriver),
		CreateTimeout: r.CreateTimeout,
	}
}

// gvisorShim reports whether the handler is gVisor's shim.
func (h HandlerTable) gvisorShim() bool {
	return strings.HasPrefix(filepath.Base(h.Path), "containerd-shim-runsc-")
}

// shimRuntime returns the runtime of the shim. gVisor's shim would look for runsc in PATH.
func (h HandlerTable) shimRuntime() string {
	if h.Runtime == "" && h.gvisorShim() {
		return "runsc"
	}
	return h.Runtime
}

// shimOptions returns the options in the types of the shim. gVisor's shim takes the flags of runsc in a separate
// table.
func (h HandlerTable) shimOptions() map[string]any {
	if len(h.Options) == 0 {
		return nil
	}
	options := map[string]any{}
	gvisor := h.gvisorShim()
	for name, text := range h.Options {
		var value any = text
		if b, err := strconv.ParseBool(text); err == nil && !gvisor {
			value = b
		}
		options[name] = value
	}
	if gvisor {
		return map[string]any{"runsc_config": options}
	}
	return options
}

// RuncConfig returns the configuration of the handler h of that name, which is an OCI runtime.
func (c *Config) RuncConfig(name string, h HandlerTable) runc.Config {
	r := c.Runtime
	return runc.Config{
		Name:          name,
		Path:          cmp.Or(h.Path, name),
		SearchPath:    r.SearchPath,
		Root:          cmp.Or(h.Root, filepath.Join(c.Run, "runtimes", name)),
		RunDir:        c.ContainersDir(),
		Conmon:        r.Conmon,
		ExecCgroups:   r.ExecCgroups,
		CRIU:          r.CRIU,
		SystemdCgroup: UseSystemdCgroup(r.CgroupDriver),
		Options:       h.Options,
		CreateTimeout: r.CreateTimeout,
	}
}

// engine returns the part of the table that the engine uses. It reads base_runtime_spec, which an error is about.
func (h HandlerTable) engine() (handler.Config, error) {
	base, err := host.ReadBaseSpec(h.BaseRuntimeSpec)
	return handler.Config{
		CNIConfDir: h.CNIConfDir, Infra: h.Infra, PrivilegedWithoutHostDevices: h.PrivilegedWithoutHostDevices,
		WritableCgroups: h.WritableCgroups, Base: base,
		AllowedAnnotations: h.AllowedAnnotations, DefaultAnnotations: h.DefaultAnnotations,
	}, err
}

// HandlerConfigs returns the part of each handler's table that the engine uses. It reads base_runtime_spec.
func (c *Config) HandlerConfigs() (map[string]handler.Config, error) {
	configs := map[string]handler.Config{}
	for name, h := range c.Runtime.Handlers {
		cfg, err := h.engine()
		if err != nil {
			return nil, fmt.Errorf("handler %s: base_runtime_spec: %w", name, err)
		}
		if c.Cadvisor.Enabled() && (cfg.Infra == "" || cfg.Infra == handler.InfraAuto) {
			cfg.Infra = handler.InfraPause // its row in cAdvisor's metrics has the pod's network
		}
		configs[name] = cfg
	}
	return configs, nil
}
