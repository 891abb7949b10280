package daemon

import (
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/cmd/podd/preflight"
	"github.com/podd-project/podd/cmd/podd/settings"
	"github.com/podd-project/podd/cmd/podd/state"
	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/image/registry"
	"github.com/podd-project/podd/network"
	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/spec/host"
	"github.com/podd-project/podd/sandbox"
	"github.com/podd-project/podd/sandbox/handler"
)

// Inspect compares the configuration with the machine: whether the files and programs that it names are there and can
// be used, and what makes pods slow.
func Inspect(ctx context.Context, l *settings.Loaded) (preflight.Report, error) {
	var r preflight.Report
	if len(l.Files) == 0 {
		r.Add(preflight.OK, "configuration", "no files, the defaults")
	} else {
		r.Add(preflight.OK, "configuration", "%s", strings.Join(l.Files, ", "))
	}
	r.Root(l.Root, image.QuotaCheck(l.Image))
	r.Run(l.Run, state.CheckSpace)
	var speed preflight.SpeedFacts
	err := withHandlers(ctx, l, func(handlers map[string]sandbox.Runtime) {
		inspectHandlers(&r, l, handlers)
		speed = speedFacts(l, handlers)
	})
	if err != nil {
		return nil, err
	}
	in := network.Inspect(l.Network)
	inspectNetwork(&r, l, in)
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
	if err := host.CheckBlockIO(l.Runtime.BlockIOConfigFile); err != nil {
		r.Add(preflight.Problem, "block I/O", "%v", err)
	}
	if l.Runtime.CgroupDriver == settings.CgroupSystemd && !settings.UseSystemdCgroup(settings.CgroupAuto) {
		r.Add(preflight.Problem, "cgroup driver", "is systemd, but systemd is not process 1")
	}
	facts, err := host.Probe()
	if err != nil {
		r.Add(preflight.Problem, "kernel", "%v", err)
		return r, nil
	}
	r.Kernel(facts, image.FilesRestricted())
	speed.CgroupV2, speed.Masquerade = facts.CgroupV2, in.Masquerade
	r.Speed(speed)
	return r, nil
}

// withHandlers makes each handler look for its programs and run them for their versions, as the daemon does, and calls
// use.
func withHandlers(ctx context.Context, l *settings.Loaded, use func(map[string]sandbox.Runtime)) (err error) {
	scratch, err := os.MkdirTemp("", "podd-check-") // for the embedded programs
	if err != nil {
		return err
	}
	log := logrus.New()
	log.SetOutput(io.Discard) // the report says the same
	d := &daemon{cfg: l.Config, log: log}
	d.cfg.Root, d.cfg.Run = filepath.Join(scratch, "root"), filepath.Join(scratch, "run")
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		d.background.Wait()
		err = errors.Join(err, d.undoStart(), os.RemoveAll(scratch))
	}()
	use(d.handlers(ctx))
	return nil
}

// inspectHandlers adds the findings of the handlers. A handler that is only there by default may be missing, unless
// pods get it without asking.
func inspectHandlers(r *preflight.Report, l *settings.Loaded, handlers map[string]sandbox.Runtime) {
	g := handler.Generation{Settings: &l.Runtime.Settings, Runtimes: handlers}
	for _, name := range slices.Sorted(maps.Keys(handlers)) {
		what := "handler " + name
		err := handlers[name].Ready()
		f := handlers[name].Features()
		switch {
		case err == nil:
			r.Add(preflight.OK, what, "%s", f.Version)
			reportCheckpoints(r, what, f.Checkpoints)
		case name == g.Default() || l.Configured("runtime.handlers."+name):
			r.Add(preflight.Problem, what, "%s", strings.TrimPrefix(err.Error(), what+": "))
		default:
			r.Add(preflight.Note, what, "not used: %s", strings.TrimPrefix(err.Error(), what+": "))
		}
	}
}

// reportCheckpoints adds the checkpoints that a handler, which is ready, cannot make.
func reportCheckpoints(r *preflight.Report, what string, c oci.Checkpoints) {
	for _, no := range []struct{ call, why string }{
		{"CheckpointPod", c.NoPods}, {"CheckpointContainer", c.NoContainers},
	} {
		if no.why != "" {
			r.Add(preflight.Note, what, "no %s: %s", no.call, no.why)
		}
	}
}

func inspectNetwork(r *preflight.Report, l *settings.Loaded, in network.Inspection) {
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
