package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/podd-project/podd/oci/runc"
	"github.com/podd-project/podd/oci/runc/initproxy"
	"github.com/podd-project/podd/oci/runc/starter"
	"github.com/podd-project/podd/oci/runc/thaw"
	"github.com/podd-project/podd/oci/shim"
	"github.com/podd-project/podd/sandbox"
	"github.com/podd-project/podd/sandbox/garbage"
	"github.com/podd-project/podd/sandbox/handler"
	"github.com/podd-project/podd/sandbox/usage"
)

// The engine looks for these with a type assertion: without them it would neither find containers whose records are
// lost nor measure those under a kernel of their own.
var (
	_ garbage.Finder = (*runc.Runtime)(nil)
	_ usage.Meter    = (*runc.Runtime)(nil)
	_ usage.Meter    = (*shim.Runtime)(nil)
)

// handlers returns the runtime handlers. One that cannot be used reports it in Status; it may become usable later, when
// its package is installed.
func (d *daemon) handlers(ctx context.Context) map[string]sandbox.Runtime {
	d.initProxy = d.installProgram(initproxy.Install,
		"failed to install the init proxy: runtimes with a kernel of their own cannot be used")
	d.thaw = d.installProgram(thaw.Install,
		"failed to install the program that thaws containers: they cannot be checkpointed")
	d.starter = d.installProgram(starter.Install,
		"failed to install the program that starts containers: their runtimes start them")
	d.stdio = sync.OnceValue(func() string { // most nodes have no shim
		return d.installProgram(shim.InstallStdio,
			"failed to install the stdio program of shims: handlers of type shim cannot be used")
	})
	handlers := map[string]sandbox.Runtime{}
	for name := range d.cfg.Runtime.Handlers {
		handlers[name] = d.handler(ctx, &d.cfg, name)
	}
	return handlers
}

// handler returns the handler of that name in cfg, which must not change any more.
func (d *daemon) handler(ctx context.Context, cfg *Config, name string) sandbox.Runtime {
	h := cfg.Runtime.Handlers[name]
	if h.Type == typeShim {
		c := cfg.shimConfig(name, h)
		c.Stdio, c.Log = d.stdio(), d.log
		runtime := shim.New(c)
		d.onClose("handler "+name, runtime.Close)
		d.background.Go(func() { d.reportHandler(ctx, &cfg.Runtime, name, c.Path, runtime) })
		return runtime
	}
	c := cfg.runcConfig(name, h)
	c.InitProxy, c.Thaw, c.Starter = d.initProxy, d.thaw, d.starter
	runtime := runc.New(c)
	d.background.Go(func() { d.reportHandler(ctx, &cfg.Runtime, name, c.Path, runtime) })
	return runtime
}

func (c *Config) shimConfig(name string, h HandlerTable) shim.Config {
	r := c.Runtime
	return shim.Config{
		Name:          name,
		Path:          cmp.Or(h.Path, "containerd-shim-"+name+"-v2"),
		SearchPath:    r.SearchPath,
		Root:          cmp.Or(h.Root, filepath.Join(c.Run, "runtimes", name)),
		RunDir:        c.containersDir(),
		Runtime:       h.shimRuntime(),
		ConfigPath:    h.ConfigPath,
		Options:       h.shimOptions(),
		SystemdCgroup: useSystemdCgroup(r.CgroupDriver),
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

// shimOptions returns the options in the types of the shim. gVisor's shim takes the flags of runsc in a table of its
// own.
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

func (c *Config) runcConfig(name string, h HandlerTable) runc.Config {
	r := c.Runtime
	return runc.Config{
		Name:          name,
		Path:          cmp.Or(h.Path, name),
		SearchPath:    r.SearchPath,
		Root:          cmp.Or(h.Root, filepath.Join(c.Run, "runtimes", name)),
		RunDir:        c.containersDir(),
		Conmon:        r.Conmon,
		CRIU:          r.CRIU,
		SystemdCgroup: useSystemdCgroup(r.CgroupDriver),
		Options:       h.Options,
		CreateTimeout: r.CreateTimeout,
	}
}

// installProgram writes an embedded program to root and returns its path. If it cannot, it logs the message, which says
// what does not work without the program, and returns "".
func (d *daemon) installProgram(install func(dir string) (string, error), message string) string {
	path, err := install(filepath.Join(d.cfg.Root, "libexec"))
	if err != nil {
		d.log.WithError(err).Warn(message)
		return ""
	}
	return path
}

// handlerConfigs returns the configuration of the handlers that the engine uses.
func (c *Config) handlerConfigs() (map[string]handler.Config, error) {
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

// useSystemdCgroup resolves the cgroup driver. auto means systemd if it is process 1, see sd_booted(3).
func useSystemdCgroup(driver string) bool {
	if driver != cgroupAuto {
		return driver == cgroupSystemd
	}
	info, err := os.Lstat("/run/systemd/system")
	return err == nil && info.IsDir()
}
