package runc

import (
	"path/filepath"
	"sync"

	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/lock"
)

// Runtime drives the containers of one handler. All state is in the bundles, so a new Runtime with the same
// configuration continues after a crash. It is safe for concurrent use. Two calls that change the same container must
// not overlap, but Signal, Delete, State and Wait may overlap any call.
type Runtime struct {
	cfg    Config
	probes *driver.ProbeCache[capabilities]

	waiters driver.Waiters
	// unmonitored are the containers for which Wait has returned oci.ErrNoMonitor.
	unmonitored sync.Map
	scan        monitorScan
	// logs are held while a container's log is reopened, and while its bundle is removed.
	logs lock.Keyed
	// dumps are held while a container is saved, so that an exec waits until it runs again, or restored.
	dumps lock.Keyed
}

// New returns the handler. It runs nothing and never fails: Ready reports whether the handler can be used.
func New(cfg Config) *Runtime {
	if cfg.CreateTimeout <= 0 {
		cfg.CreateTimeout = driver.DefaultCreateTimeout
	}
	if cfg.Conmon == "" {
		cfg.Conmon = "conmon"
	}
	// conmon and the runtime run in other directories.
	if abs, err := filepath.Abs(cfg.RunDir); err == nil {
		cfg.RunDir = abs
	}
	if abs, err := filepath.Abs(cfg.Root); err == nil {
		cfg.Root = abs
	}
	r := &Runtime{cfg: cfg}
	r.probes = driver.NewProbeCache(cfg.Name, defaultCapabilities(), r.probe)
	return r
}

// lookup finds a program of the handler.
func (r *Runtime) lookup(name string) (string, error) {
	return driver.LookPath(r.cfg.Name, name, r.cfg.SearchPath)
}
