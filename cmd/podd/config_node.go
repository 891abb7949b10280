package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/podd-project/podd/cmd/podd/preflight"
	"github.com/podd-project/podd/image/registry"
	"github.com/podd-project/podd/network"
	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/spec/host"
	"github.com/podd-project/podd/sandbox"
	"github.com/podd-project/podd/sandbox/handler"
)

// checkNode compares the configuration with the machine: whether what it names is there and can be used. It returns an
// error if there are problems; notes are none.
func checkNode(cmd *cobra.Command, l *loaded, output outputFormat) error {
	if os.Geteuid() != 0 {
		return errors.New("--node must run as root: it reads what podd reads")
	}
	report, err := l.inspect(cmd.Context())
	if err != nil {
		return err
	}
	err = printReport(cmd.OutOrStdout(), report, output)
	if n := report.Problems(); err == nil && n > 0 {
		err = fmt.Errorf("the node has %d problems", n)
	}
	return err
}

func printReport(w io.Writer, report preflight.Report, output outputFormat) error {
	if output == outputJSON {
		return printJSON(w, report)
	}
	return report.Print(w)
}

// inspect does all checks.
func (l *loaded) inspect(ctx context.Context) (preflight.Report, error) {
	var r preflight.Report
	if len(l.files) == 0 {
		r.Add(preflight.OK, "configuration", "no files, the defaults")
	} else {
		r.Add(preflight.OK, "configuration", "%s", strings.Join(l.files, ", "))
	}
	r.Root(l.Root)
	r.Run(l.Run, checkSpace)
	err := l.withHandlers(ctx, func(handlers map[string]sandbox.Runtime) { l.inspectHandlers(&r, handlers) })
	if err != nil {
		return nil, err
	}
	l.inspectNetwork(&r)
	problems := registry.Inspect(l.Image)
	for _, err := range problems {
		r.Add(preflight.Problem, "images", "%v", err)
	}
	if len(problems) == 0 {
		r.Add(preflight.OK, "images", "policy, registries and credentials can be read")
	}
	if err := registry.InspectLayerStore(l.Image); err != nil {
		r.Add(preflight.Problem, "images", "%v", err)
	}
	if l.Runtime.CgroupDriver == cgroupSystemd && !useSystemdCgroup(cgroupAuto) {
		r.Add(preflight.Problem, "cgroup driver", "is systemd, but systemd is not process 1")
	}
	facts, err := host.Probe()
	if err != nil {
		r.Add(preflight.Problem, "kernel", "%v", err)
		return r, nil
	}
	r.Kernel(facts)
	return r, nil
}

// withHandlers has each handler look for its programs and run them for their versions, as the daemon does, and calls
// use.
func (l *loaded) withHandlers(ctx context.Context, use func(map[string]sandbox.Runtime)) (err error) {
	scratch, err := os.MkdirTemp("", "podd-check-") // for the embedded programs
	if err != nil {
		return err
	}
	log := logrus.New()
	log.SetOutput(io.Discard) // what it says is in the report
	d := &daemon{cfg: l.Config, log: log}
	d.cfg.place(filepath.Join(scratch, "root"), filepath.Join(scratch, "run"))
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		d.background.Wait()
		err = errors.Join(err, d.undoStart(), os.RemoveAll(scratch))
	}()
	use(d.handlers(ctx))
	return nil
}

// inspectHandlers adds what the handlers found. A handler that is only there by default may be missing, unless pods get
// it without asking.
func (l *loaded) inspectHandlers(r *preflight.Report, handlers map[string]sandbox.Runtime) {
	g := handler.Generation{Settings: &l.Runtime.Settings, Runtimes: handlers}
	for _, name := range slices.Sorted(maps.Keys(handlers)) {
		what := "handler " + name
		err := handlers[name].Ready()
		f := handlers[name].Features()
		switch {
		case err == nil:
			r.Add(preflight.OK, what, "%s", f.Version)
			reportCheckpoints(r, what, f.Checkpoints)
		case name == g.Default() || l.configured("runtime.handlers."+name):
			r.Add(preflight.Problem, what, "%s", strings.TrimPrefix(err.Error(), what+": "))
		default:
			r.Add(preflight.Note, what, "not used: %s", strings.TrimPrefix(err.Error(), what+": "))
		}
	}
}

// reportCheckpoints adds what a handler that is ready cannot checkpoint.
func reportCheckpoints(r *preflight.Report, what string, c oci.Checkpoints) {
	for _, no := range []struct{ call, why string }{
		{"CheckpointPod", c.NoPods}, {"CheckpointContainer", c.NoContainers},
	} {
		if no.why != "" {
			r.Add(preflight.Note, what, "no %s: %s", no.call, no.why)
		}
	}
}

func (l *loaded) inspectNetwork(r *preflight.Report) {
	in := network.Inspect(l.Network)
	for _, err := range in.Problems {
		r.Add(preflight.Problem, "network", "%v", err)
	}
	switch {
	case len(in.Problems) > 0:
	case in.Network == "":
		r.Add(preflight.Note, "network", "no CNI configuration in %s yet: a network add-on writes it", l.Network.ConfDir)
	default:
		r.Add(preflight.OK, "network", "%s", in.Network)
	}
}
