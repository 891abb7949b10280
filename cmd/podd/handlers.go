package main

import (
	"cmp"
	"context"
	"os"
	"path/filepath"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/standin"
	"github.com/podd-project/podd/sandbox"
)

// handlers makes the runtime handlers. One that cannot be used says so when asked; it is kept, for it may become
// usable when a package is installed.
func (d *daemon) handlers(ctx context.Context) map[string]sandbox.Runtime {
	standIn := d.installStandIn()
	handlers := map[string]sandbox.Runtime{}
	for name, h := range d.cfg.Runtime.Handlers {
		cfg := d.handlerConfig(name, h)
		cfg.StandIn = standIn
		runtime := oci.New(cfg)
		d.background.Go(func() { d.reportHandler(ctx, cfg, runtime) })
		handlers[name] = runtime
	}
	return handlers
}

func (d *daemon) handlerConfig(name string, h HandlerConfig) oci.HandlerConfig {
	r := d.cfg.Runtime
	return oci.HandlerConfig{
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
	path, err := standin.Install(filepath.Join(d.cfg.Root, "libexec"))
	if err != nil {
		d.log.WithError(err).Warn("runtimes with a kernel of their own cannot be used")
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
