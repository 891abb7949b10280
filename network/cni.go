package network

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/checkpoint"
)

// CNI attaches pods to the node's CNI network. Its methods may be called at the same time; calls for one pod wait for
// each other, calls for different pods never do.
type CNI struct {
	cfg    Config
	log    logrus.FieldLogger
	env    []string
	pods   slots
	gate   gate
	health *health
	cidr   atomic.Pointer[string]

	stop    context.CancelFunc
	running sync.WaitGroup
	// newExec makes what runs the plugins; tests put another one in its place.
	newExec func(o execOptions) invoke.Exec
}

// New returns a CNI that watches the configuration directory until Close. That there is no configuration yet, or no
// plugin, is no error here: Ready says so.
func New(cfg Config, log logrus.FieldLogger) (*CNI, error) {
	c, err := newCNI(cfg, log)
	if err != nil {
		return nil, err
	}
	c.start()
	return c, nil
}

// newCNI is New without the watching.
func newCNI(cfg Config, log logrus.FieldLogger) (*CNI, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("network configuration: %w", err)
	}
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("network state: %w", err)
	}
	if err := checkpoint.Sweep(cfg.StateDir); err != nil {
		return nil, fmt.Errorf("network state: %w", err)
	}
	c := &CNI{cfg: cfg, log: log, env: pluginEnv(os.Environ(), cfg.PluginEnv), stop: func() {}}
	c.newExec = func(o execOptions) invoke.Exec {
		return &executor{env: c.env, execOptions: o}
	}
	c.health = newHealth(c)
	return c, nil
}

// start looks at the configuration once, so that Ready has an answer, and goes on watching it.
func (c *CNI) start() {
	ctx, cancel := context.WithCancel(context.Background())
	c.stop = cancel
	watch := newWatch(c.cfg.ConfDir, c.log)
	c.health.readConf()
	c.running.Go(func() { watch.run(ctx, c.health.wake) })
	c.running.Go(func() { c.health.run(ctx) })
}

// Close ends the watching. Attachments under way go on.
func (c *CNI) Close() error {
	c.stop()
	c.running.Wait()
	return nil
}

// Ready is nil when a pod's ADD can be expected to work; otherwise it is errdefs.ErrUnavailable and says why. It
// answers from memory, whatever plugins are doing.
func (c *CNI) Ready() error { return c.health.ready() }

// libcni returns a driver for one operation.
func (c *CNI) libcni(o execOptions) *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir(c.cfg.BinDirs, c.cacheDir(), c.newExec(o))
}

// cacheDir is where libcni insists on keeping results. Nothing relies on them: it writes them too late, when all plugins
// have succeeded, and in place.
func (c *CNI) cacheDir() string { return filepath.Join(c.cfg.StateDir, "libcni") }

// dropCache removes what libcni kept about a pod: there is to be one record only.
func (c *CNI) dropCache(network, podID string) {
	_ = os.Remove(filepath.Join(c.cacheDir(), "results", fmt.Sprintf("%s-%s-%s", network, podID, ifName)))
}

// missingPlugin returns an error that names the first plugin of list that is not installed.
func (c *CNI) missingPlugin(list *libcni.NetworkConfigList) error {
	exec := c.newExec(execOptions{})
	for _, p := range list.Plugins {
		for _, name := range []string{p.Network.Type, p.Network.IPAM.Type} {
			if name == "" {
				continue
			}
			if _, err := exec.FindInPath(name, c.cfg.BinDirs); err != nil {
				return err
			}
		}
	}
	return nil
}
