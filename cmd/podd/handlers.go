package main

import (
	"cmp"
	"context"
	"os"
	"path/filepath"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox"
)

// handlers makes the runtime handlers. One that cannot be used says so when asked; it is kept, for it may become
// usable when a package is installed.
func (d *daemon) handlers(ctx context.Context) map[string]sandbox.Runtime {
	handlers := map[string]sandbox.Runtime{}
	for name, h := range d.cfg.Runtime.Handlers {
		cfg := d.handlerConfig(name, h)
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
		CreateTimeout: r.CreateTimeout,
	}
}

// confDirs are the CNI configuration directories of the handlers that have one.
func (d *daemon) confDirs() map[string]string {
	dirs := map[string]string{}
	for name, h := range d.cfg.Runtime.Handlers {
		if h.CNIConfDir != "" {
			dirs[name] = h.CNIConfDir
		}
	}
	return dirs
}

// useSystemdCgroup decides what "auto" means: systemd where it runs the machine, see sd_booted(3).
func useSystemdCgroup(driver string) bool {
	if driver != cgroupAuto {
		return driver == cgroupSystemd
	}
	info, err := os.Lstat("/run/systemd/system")
	return err == nil && info.IsDir()
}
