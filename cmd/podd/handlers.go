package main

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/podd-project/podd/oci/runc"
	"github.com/podd-project/podd/oci/runc/initproxy"
	"github.com/podd-project/podd/oci/shim"
	"github.com/podd-project/podd/sandbox"
)

// handlers makes the runtime handlers. One that cannot be used says so when asked; it is kept, for it may become
// usable when a package is installed.
func (d *daemon) handlers(ctx context.Context) map[string]sandbox.Runtime {
	standIn, keeper := d.installStandIn(), d.installKeeper()
	handlers := map[string]sandbox.Runtime{}
	for name, h := range d.cfg.Runtime.Handlers {
		if h.Type == typeShim {
			cfg := d.shimConfig(name, h)
			cfg.Keeper = keeper
			runtime := shim.New(cfg)
			d.onClose("handler "+name, runtime.Close)
			d.background.Go(func() { d.reportHandler(ctx, name, cfg.Path, runtime) })
			handlers[name] = runtime
			continue
		}
		cfg := d.handlerConfig(name, h)
		cfg.StandIn = standIn
		runtime := runc.New(cfg)
		d.background.Go(func() { d.reportHandler(ctx, name, cfg.Path, runtime) })
		handlers[name] = runtime
	}
	return handlers
}

func (d *daemon) shimConfig(name string, h HandlerTable) shim.Config {
	r := d.cfg.Runtime
	return shim.Config{
		Name:          name,
		Path:          cmp.Or(h.Path, "containerd-shim-"+name+"-v2"),
		SearchPath:    r.SearchPath,
		Root:          cmp.Or(h.Root, filepath.Join(d.cfg.Run, "runtimes", name)),
		RunDir:        d.containersDir(),
		Runtime:       h.shimRuntime(),
		ConfigPath:    h.ConfigPath,
		Options:       h.shimOptions(),
		SystemdCgroup: r.SystemdCgroup,
		CreateTimeout: r.CreateTimeout,
		Log:           d.log,
	}
}

// gvisorShim tells whether the handler is gVisor's shim.
func (h HandlerTable) gvisorShim() bool {
	return strings.HasPrefix(filepath.Base(h.Path), "containerd-shim-runsc-")
}

// shimRuntime is the runtime of the shim. gVisor's would look for runsc in PATH.
func (h HandlerTable) shimRuntime() string {
	if h.Runtime == "" && h.gvisorShim() {
		return "runsc"
	}
	return h.Runtime
}

// shimOptions are the options in the shim's types. gVisor's shim has those of runsc in a table of their own.
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

func (d *daemon) handlerConfig(name string, h HandlerTable) runc.Config {
	r := d.cfg.Runtime
	return runc.Config{
		Name:          name,
		Path:          cmp.Or(h.Path, name),
		SearchPath:    r.SearchPath,
		Root:          cmp.Or(h.Root, filepath.Join(d.cfg.Run, "runtimes", name)),
		RunDir:        d.containersDir(),
		Conmon:        r.Conmon,
		SystemdCgroup: r.SystemdCgroup,
		Options:       h.Options,
		CreateTimeout: r.CreateTimeout,
	}
}

// installStandIn puts podd's own stand-in where monitors find it. Without it, handlers that need it say so.
func (d *daemon) installStandIn() string {
	path, err := initproxy.Install(filepath.Join(d.cfg.Root, "libexec"))
	if err != nil {
		d.log.WithError(err).Warn("runtimes with a kernel of their own cannot be used")
		return ""
	}
	return path
}

// installKeeper puts the keeper of shims' output where it can be run. Without it, handlers of shims say so.
func (d *daemon) installKeeper() string {
	path, err := shim.InstallKeeper(filepath.Join(d.cfg.Root, "libexec"))
	if err != nil {
		d.log.WithError(err).Warn("runtime handlers of type shim cannot be used")
		return ""
	}
	return path
}

// handlerConfigs are what the engine must know of the handlers.
func (d *daemon) handlerConfigs() map[string]sandbox.HandlerConfig {
	configs := map[string]sandbox.HandlerConfig{}
	for name, h := range d.cfg.Runtime.Handlers {
		configs[name] = h.engine()
	}
	return configs
}

// useSystemdCgroup decides what "auto" means: systemd where it runs the machine, see sd_booted(3).
func useSystemdCgroup(driver string) bool {
	if driver != cgroupAuto {
		return driver == cgroupSystemd
	}
	info, err := os.Lstat("/run/systemd/system")
	return err == nil && info.IsDir()
}
