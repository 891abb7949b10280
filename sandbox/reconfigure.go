package sandbox

import "github.com/podd-project/podd/sandbox/handler"

// Reconfigure replaces the configuration, which must be valid, and the handlers. An error about a handler changes
// nothing. Calls in progress may still use the former ones. Pods keep the handler that they were created with, until
// podd is started again; also one that is no longer configured.
//
// CgroupPrefix, CDIDirs, CreateMissingHostPaths, ShmSize and StatsInterval are read by New only.
func (e *Engine) Reconfigure(cfg Config, runtimes map[string]Runtime) error {
	next := &handler.Generation{Settings: &cfg.Settings, Runtimes: runtimes}
	if err := next.Check(); err != nil {
		return err
	}
	e.cfg.Store(&cfg)
	e.handlers.Replace(next)
	return nil
}
