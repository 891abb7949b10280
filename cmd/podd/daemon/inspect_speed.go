package daemon

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"strings"

	"github.com/podd-project/podd/cmd/podd/preflight"
	"github.com/podd-project/podd/cmd/podd/settings"
	"github.com/podd-project/podd/network"
	"github.com/podd-project/podd/oci/spec/host"
	"github.com/podd-project/podd/sandbox"
)

// SpeedFacts returns the facts of the configuration and the machine that decide how fast pods start.
func SpeedFacts(ctx context.Context, l *settings.Loaded) (preflight.SpeedFacts, error) {
	machine, err := host.Probe()
	if err != nil {
		return preflight.SpeedFacts{}, err
	}
	in := network.Inspect(l.Network)
	f := preflight.SpeedFacts{
		CPUs: runtime.NumCPU(), CgroupV2: machine.CgroupV2, Masquerade: in.Masquerade,
		DefaultHandler: l.Runtime.DefaultHandler,
	}
	err = withHandlers(ctx, l, func(handlers map[string]sandbox.Runtime) {
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
	})
	return f, err
}
