package daemon

import (
	"maps"
	"runtime"
	"slices"
	"strings"

	"github.com/podd-project/podd/cmd/podd/preflight"
	"github.com/podd-project/podd/cmd/podd/settings"
	"github.com/podd-project/podd/sandbox"
)

// speedFacts returns the facts of the configuration and its handlers that decide how fast pods start.
func speedFacts(l *settings.Loaded, handlers map[string]sandbox.Runtime) preflight.SpeedFacts {
	f := preflight.SpeedFacts{CPUs: runtime.NumCPU(), DefaultHandler: l.Runtime.DefaultHandler}
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(handlers))) {
		version := handlers[name].Features().Version
		if _, ok := handlers[name].(interface{ MonitorVersion() string }); ok {
			f.Monitor = locate(l.Runtime.Conmon, l.Runtime.SearchPath)
		}
		if name == f.DefaultHandler {
			f.Version = version
		}
		if strings.HasPrefix(version, "crun ") && handlers[name].Ready() == nil {
			f.Crun = name
		}
	}
	return f
}
