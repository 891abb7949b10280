package main

import (
	"context"
	"errors"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/podd-project/podd/cmd/podd/preflight"
	"github.com/podd-project/podd/network"
	"github.com/podd-project/podd/oci/spec/host"
	"github.com/podd-project/podd/sandbox"
)

// checkSpeed prints what makes pods slow on this node.
func checkSpeed(cmd *cobra.Command, l *loaded, output outputFormat) error {
	if os.Geteuid() != 0 {
		return errors.New("--speed must run as root: it reads what podd reads")
	}
	facts, err := l.speedFacts(cmd.Context())
	if err != nil {
		return err
	}
	var report preflight.Report
	report.Speed(facts)
	return printReport(cmd.OutOrStdout(), report, output)
}

func (l *loaded) speedFacts(ctx context.Context) (preflight.SpeedFacts, error) {
	machine, err := host.Probe()
	if err != nil {
		return preflight.SpeedFacts{}, err
	}
	in := network.Inspect(l.Network)
	f := preflight.SpeedFacts{
		CPUs: runtime.NumCPU(), CgroupV2: machine.CgroupV2, Masquerade: in.Masquerade, Idle: in.Idle,
		DefaultHandler: l.Runtime.DefaultHandler,
	}
	err = l.withHandlers(ctx, func(handlers map[string]sandbox.Runtime) {
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
