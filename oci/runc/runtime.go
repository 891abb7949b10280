package runc

import (
	"path/filepath"
	"sync"

	"github.com/podd-project/podd/oci/probe"
)

// Runtime drives the containers of one handler. It holds no container: everything is in the bundles, so a
// new Runtime with the same configuration continues where a dead daemon's left off. Safe for concurrent use;
// two verbs that change the same container must not overlap, but Signal, Delete, State and Wait may overlap
// anything.
type Runtime struct {
	cfg    Config
	probed *probe.Cache[answers]

	mu sync.Mutex
	// watches are the calls of Wait that Delete must leave an exit status to.
	watches map[string]*watch
}

// New returns the handler. It runs nothing and never fails: Ready says whether the handler can be used.
func New(cfg Config) *Runtime {
	if cfg.CreateTimeout <= 0 {
		cfg.CreateTimeout = commandTimeout
	}
	if cfg.Conmon == "" {
		cfg.Conmon = "conmon"
	}
	// conmon and the runtime work in other directories.
	if abs, err := filepath.Abs(cfg.RunDir); err == nil {
		cfg.RunDir = abs
	}
	if abs, err := filepath.Abs(cfg.Root); err == nil {
		cfg.Root = abs
	}
	r := &Runtime{cfg: cfg, watches: map[string]*watch{}}
	r.probed = probe.New(cfg.Name, certain(), r.probe)
	return r
}
