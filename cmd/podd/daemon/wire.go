package daemon

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/cmd/podd/state"
	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/network"
	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/oci/pause"
	"github.com/podd-project/podd/oci/process"
	"github.com/podd-project/podd/oci/program"
	"github.com/podd-project/podd/oci/spec"
	"github.com/podd-project/podd/oci/spec/host"
	"github.com/podd-project/podd/sandbox"
	"github.com/podd-project/podd/sandbox/budget"
	"github.com/podd-project/podd/sandbox/files"
	"github.com/podd-project/podd/sandbox/namespaces"
	"github.com/podd-project/podd/sandbox/usage"
	"github.com/podd-project/podd/server"
	"github.com/podd-project/podd/streaming"
)

// build creates all parts of the node. Status, not build, reports a missing runtime or CNI
// configuration.
func (d *daemon) build(ctx context.Context) (*Node, error) {
	d.observers = d.newObservers()
	n, err := d.mechanisms(ctx)
	if err != nil {
		return nil, err
	}
	if n.streams, err = d.streaming(ctx, n.Engine); err != nil {
		return nil, err
	}
	n.server = d.server(n)
	return n, nil
}

// mechanisms creates the image store, the network and the engine.
func (d *daemon) mechanisms(ctx context.Context) (*Node, error) {
	boot := process.BootID()
	if boot == "" {
		return nil, errors.New("the kernel's boot id cannot be read: is /proc mounted?")
	}
	d.machine = d.cfg.EngineNode(boot)
	s := d.cfg.Streaming
	d.budgets = budget.New(s.MaxSessions, s.MaxSessionsPerPod, streaming.MaxPending)
	images, err := image.New(d.cfg.Image, d.cfg.ImageNode(boot), d.log)
	if err != nil {
		return nil, err
	}
	d.onClose("image store", images.Close)
	pods, err := network.New(d.cfg.NetworkDir(), d.cfg.Network, d.log)
	if err != nil {
		return nil, err
	}
	d.onClose("network", pods.Close)
	d.background.Go(func() { d.reportPlugins(ctx) })
	n := &Node{Images: images, pods: pods, plugins: d.plugins()}
	if err := d.engine(ctx, n); err != nil {
		return nil, err
	}
	d.onClose("engine", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		return n.Engine.Close(ctx)
	})
	return n, nil
}

// server creates the CRI server.
func (d *daemon) server(n *Node) *server.Server {
	read := specReader(d.cfg.ContainersDir())
	return server.New(
		server.Config{Version: semver(d.version), SystemdCgroup: d.machine.SystemdCgroup},
		server.Deps{
			Engine: server.Adapt(n.Engine), Images: n.Images, Network: n.pods, Streamer: n.streams, Log: d.log,
			Observe: d.observers.call(), RuntimeSpec: read,
			PodSpec: podSpecReader(read, d.machine.Layout),
			Space:   func() error { return state.CheckSpace(d.cfg.Run) },
			Info: map[string]func() any{
				"config":    func() any { return d.current.Load().values },
				"cniconfig": func() any { return n.pods.Info() },
				"pulls":     func() any { pulls, _ := n.Images.Pulls(); return pulls },
				"engine": func() any {
					return map[string]any{
						"operations": n.Engine.Operations(), "troubles": n.Engine.Troubles(), "budgets": d.budgets.Usages(),
					}
				},
				"problems": func() any {
					s, _ := adminNode{Engine: n.Engine, d: d, n: n}.Status(context.Background(), "")
					return s.Problems
				},
				"landlock": func() any { return image.FilesRestricted() },
			},
		},
	)
}

// engine creates the engine of n and the parts that only the engine uses.
func (d *daemon) engine(ctx context.Context, n *Node) error {
	if err := d.detect(); err != nil {
		return err
	}
	facts, cdi, err := d.probe(ctx)
	if err != nil {
		return err
	}
	pauseProgram := ""
	if d.machine.PauseRootfs != "" {
		pauseProgram = filepath.Join(d.machine.PauseRootfs, "pause")
	}
	runtimes := d.handlers(ctx)
	d.current.Store(&generation{number: 1, cfg: &d.cfg, values: d.values, runtimes: runtimes, loaded: time.Now()})
	deps := sandbox.Deps{
		Plugins:    n.plugins,
		Namespaces: namespaces.New(pauseProgram),
		Network:    n.pods,
		Images:     n.Images,
		Mounter:    files.Kernel{},
		Runtimes:   runtimes,
		Retired:    d.retiredHandler,
		Facts:      facts,
		CDI:        cdi,
		Disk:       n.Images,
		Budgets:    d.budgets,
		Log:        d.log,
		Observe:    d.observers.operation(),
		Exited:     d.observers.exit(),
		OOMCause:   cgroups.OOMCause,
	}
	if tree, err := cgroups.Find(); err == nil {
		deps.Cgroups, deps.Prime = usage.CgroupTree(tree), tree.Prime
	} else {
		d.log.WithError(err).Error("failed to find the cgroup hierarchy: resource usage of containers is not measured")
	}
	n.Engine, err = sandbox.New(d.machine, d.cfg.Runtime.Config, deps)
	return err
}

// detect completes the facts of the machine, and reads the files of the handlers.
func (d *daemon) detect() (err error) {
	if d.machine.PauseRootfs, err = d.installPause(); err != nil {
		return err
	}
	if d.cfg.Runtime.Config.Handlers, err = d.cfg.HandlerConfigs(); err != nil {
		return err
	}
	d.log.WithFields(logrus.Fields{
		"systemd": d.machine.SystemdCgroup, "configured": d.cfg.Runtime.CgroupDriver,
	}).Info("cgroup driver selected")
	return nil
}

// probe detects the features of the kernel that config.json depends on.
func (d *daemon) probe(ctx context.Context) (spec.Facts, *host.CDI, error) {
	facts, err := host.Probe()
	if err != nil {
		return facts, nil, fmt.Errorf("probe the kernel: %w", err)
	}
	if facts.DefaultAppArmor, err = host.LoadAppArmor(ctx); err != nil {
		d.log.WithError(err).Warn("failed to load the default AppArmor profile: containers run without it")
	}
	cdi, err := host.NewCDI(d.cfg.Runtime.CDIDirs)
	if err != nil {
		return facts, nil, fmt.Errorf("read CDI specifications: %w", err)
	}
	return facts, cdi, nil
}

// installPause writes the root filesystem of infra containers and returns its path, "" if podd was built without the
// pause program: it then serves all pods but those that share a PID namespace or have a user namespace.
func (d *daemon) installPause() (string, error) {
	rootfs, err := pause.Install(filepath.Join(d.cfg.Root, "pause"))
	if errors.Is(err, program.ErrNotBuilt) {
		d.log.WithError(err).
			Warn("no pause program: pods that share a PID namespace or have a user namespace cannot be run")
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return rootfs, host.ShareFiles(rootfs)
}
