package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/network"
	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/oci/pause"
	"github.com/podd-project/podd/oci/process"
	"github.com/podd-project/podd/oci/program"
	"github.com/podd-project/podd/oci/spec"
	"github.com/podd-project/podd/oci/spec/host"
	"github.com/podd-project/podd/sandbox"
	"github.com/podd-project/podd/sandbox/namespaces"
	"github.com/podd-project/podd/sandbox/usage"
	"github.com/podd-project/podd/server"
)

// node is everything that serves this node.
type node struct {
	images *image.Store
	pods   *network.CNI
	engine *sandbox.Engine
	server *server.Server // nil in commands that do not serve
}

// build makes the mechanisms, the engine over them and the server over that. What is missing on the machine
// (a runtime, a CNI configuration) is reported by Status, and is no error here.
func (d *daemon) build(ctx context.Context) (*node, error) {
	var err error
	if d.observers, err = d.newObservers(); err != nil {
		return nil, err
	}
	n, err := d.mechanisms(ctx)
	if err != nil {
		return nil, err
	}
	streams, err := d.streaming(ctx, n.engine)
	if err != nil {
		return nil, err
	}
	n.server, err = d.server(n, streams)
	return n, err
}

// mechanisms makes what works on the machine, and the engine over that.
func (d *daemon) mechanisms(ctx context.Context) (*node, error) {
	boot := process.BootID()
	if boot == "" {
		return nil, errors.New("the kernel's boot id cannot be read: is /proc mounted?")
	}
	d.cfg.Image.BootID, d.cfg.Runtime.BootID = boot, boot
	images, err := image.New(d.cfg.Image, d.log)
	if err != nil {
		return nil, err
	}
	d.onClose("image store", images.Close)
	pods, err := network.New(d.cfg.Network, d.log)
	if err != nil {
		return nil, err
	}
	d.onClose("network", pods.Close)
	d.background.Go(func() { d.reportPlugins(ctx) })
	engine, err := d.engine(ctx, images, pods)
	if err != nil {
		return nil, err
	}
	d.onClose("engine", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		return engine.Close(ctx)
	})
	return &node{images: images, pods: pods, engine: engine}, nil
}

// server makes what answers the kubelet.
func (d *daemon) server(n *node, streams server.Streamer) (*server.Server, error) {
	return server.New(
		server.Config{Version: semver(version), SystemdCgroup: d.cfg.Runtime.SystemdCgroup},
		server.Deps{
			Engine: server.Adapt(n.engine), Images: n.images, Network: n.pods, Streamer: streams, Log: d.log, Observe: d.observers.call(),
			RuntimeSpec: specReader(d.containersDir()),
			Info: map[string]func() any{
				"config": func() any { return d.values },
				"pulls":  func() any { return n.images.Pulls() },
				"engine": func() any { return engineInfo(n.engine) },
			},
		},
	)
}

// engine makes the engine and what only it uses.
func (d *daemon) engine(ctx context.Context, images *image.Store, pods *network.CNI) (*sandbox.Engine, error) {
	cfg := &d.cfg.Runtime.Config
	if err := d.findOut(cfg); err != nil {
		return nil, err
	}
	facts, cdi, err := d.probe(ctx)
	if err != nil {
		return nil, err
	}
	holder := ""
	if cfg.PauseRootfs != "" {
		holder = filepath.Join(cfg.PauseRootfs, "pause")
	}
	return sandbox.New(*cfg, sandbox.Deps{
		Namespaces: namespaces.New(holder),
		Network:    pods,
		Images:     images,
		Runtimes:   d.handlers(ctx),
		Former:     d.former,
		Facts:      facts,
		CDI:        cdi,
		Cgroups:    d.cgroups(),
		Disk:       images,
		Log:        d.log,
		Observe:    d.observers.operation(),
	})
}

// cgroups finds the machine's control groups, nil when it has none.
func (d *daemon) cgroups() usage.Cgroups {
	tree, err := cgroups.Find()
	if err != nil {
		d.log.WithError(err).Error("resource usage of containers will not be measured")
		return nil
	}
	return usage.CgroupTree(tree)
}

// findOut fills in what the engine's configuration takes from the machine.
func (d *daemon) findOut(cfg *sandbox.Config) error {
	var err error
	if cfg.PauseRootfs, err = d.installPause(); err != nil {
		return err
	}
	cfg.Handlers = d.handlerConfigs()
	cfg.SystemdCgroup = useSystemdCgroup(d.cfg.Runtime.CgroupDriver)
	d.log.WithFields(logrus.Fields{"systemd": cfg.SystemdCgroup, "configured": d.cfg.Runtime.CgroupDriver}).Info("cgroup driver chosen")
	return nil
}

// probe asks the machine what config.json depends on.
func (d *daemon) probe(ctx context.Context) (spec.Facts, *host.CDI, error) {
	facts, err := host.Probe()
	if err != nil {
		return facts, nil, fmt.Errorf("ask what the machine can do: %w", err)
	}
	if facts.DefaultAppArmor, err = host.LoadAppArmor(ctx); err != nil {
		d.log.WithError(err).Warn("default AppArmor profile could not be loaded, containers run without it")
	}
	cdi, err := host.NewCDI(d.cfg.Runtime.CDIDirs)
	if err != nil {
		return facts, nil, fmt.Errorf("CDI: %w", err)
	}
	return facts, cdi, nil
}

// containersDir holds a bundle for each container.
func (d *daemon) containersDir() string { return filepath.Join(d.cfg.Run, "containers") }

// specReader reads the config.json of containers in dir. The ids are those of records.
func specReader(dir string) server.SpecReader {
	return func(id string) (*specs.Spec, error) {
		data, err := os.ReadFile(filepath.Join(dir, id, "config.json"))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: container %s has no config.json", errdefs.ErrNotFound, id)
		}
		if err != nil {
			return nil, fmt.Errorf("read config.json: %w", err)
		}
		config := &specs.Spec{}
		if err := json.Unmarshal(data, config); err != nil {
			return nil, fmt.Errorf("read config.json of %s: %w", id, err)
		}
		return config, nil
	}
}

// preload loads the images that come with the node.
func (n *node) preload(ctx context.Context, log logrus.FieldLogger) {
	if err := n.images.Load(ctx); err != nil && ctx.Err() == nil {
		log.WithError(err).Error("preloaded images could not all be loaded")
	}
}

// installPause puts podd's own pause program where infra containers find it. A podd that was built without it
// serves all pods but those that share a PID namespace.
func (d *daemon) installPause() (string, error) {
	rootfs, err := pause.Install(filepath.Join(d.cfg.Root, "pause"))
	if errors.Is(err, program.ErrNotBuilt) {
		d.log.WithError(err).Warn("pods that share a PID namespace or have a user namespace cannot be run")
		return "", nil
	}
	return rootfs, err
}
