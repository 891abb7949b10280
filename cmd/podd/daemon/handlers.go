package daemon

import (
	"context"
	"path/filepath"
	"sync"

	"github.com/podd-project/podd/cmd/podd/settings"
	"github.com/podd-project/podd/oci/runc"
	"github.com/podd-project/podd/oci/runc/initproxy"
	"github.com/podd-project/podd/oci/runc/starter"
	"github.com/podd-project/podd/oci/runc/thaw"
	"github.com/podd-project/podd/oci/shim"
	"github.com/podd-project/podd/sandbox"
	"github.com/podd-project/podd/sandbox/garbage"
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

// handler returns the handler of that name in cfg, which must not change from then on.
func (d *daemon) handler(ctx context.Context, cfg *settings.Config, name string) sandbox.Runtime {
	h := cfg.Runtime.Handlers[name]
	if h.Type == settings.TypeShim {
		c := cfg.ShimConfig(name, h)
		c.Stdio, c.Log = d.stdio(), d.log
		runtime := shim.New(c)
		d.onClose("handler "+name, runtime.Close)
		d.background.Go(func() { d.reportHandler(ctx, &cfg.Runtime, name, c.Path, runtime) })
		return runtime
	}
	c := cfg.RuncConfig(name, h)
	c.InitProxy, c.Thaw, c.Starter = d.initProxy, d.thaw, d.starter
	runtime := runc.New(c)
	d.background.Go(func() { d.reportHandler(ctx, &cfg.Runtime, name, c.Path, runtime) })
	return runtime
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
