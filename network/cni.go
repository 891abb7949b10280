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
	"golang.org/x/sync/semaphore"

	"github.com/podd-project/podd/checkpoint"
	"github.com/podd-project/podd/network/reference"
	"github.com/podd-project/podd/oci/lock"
)

// CNI attaches pods to the node's CNI network. Its methods may be called concurrently; calls for one pod wait for each
// other, calls for different pods never do.
type CNI struct {
	// settings are replaced as a whole, see Reconfigure.
	settings atomic.Pointer[Config]

	// stateDir holds the attachment records.
	stateDir string
	log      logrus.FieldLogger
	env      []string
	// pods admits one operation per pod at a time, as CNI requires for a container.
	pods lock.Keyed
	gate gate
	// entering bounds the threads of Dial in pods' namespaces.
	entering *semaphore.Weighted
	health   *health
	cidr     atomic.Pointer[string]
	idle     reference.Idle
	choice   choice

	watching sync.Mutex // guards stop, and is held while the watch is replaced
	stop     context.CancelFunc
	running  sync.WaitGroup
	// newExec returns the executor of plugins, and sync syncs a record; tests replace both.
	newExec func(o execOptions) invoke.Exec
	sync    func(path string) error
}

// New returns a CNI that watches the configuration directory until Close. It keeps its records in stateDir, an absolute
// path, which it creates. The configuration must be valid. Ready, not New, reports a missing configuration or plugin.
func New(stateDir string, cfg Config, log logrus.FieldLogger) (*CNI, error) {
	c, err := newCNI(stateDir, cfg, log)
	if err != nil {
		return nil, err
	}
	c.start()
	return c, nil
}

// newCNI is New without the watch.
func newCNI(stateDir string, cfg Config, log logrus.FieldLogger) (*CNI, error) {
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return nil, fmt.Errorf("network state: %w", err)
	}
	if err := checkpoint.Sweep(stateDir); err != nil {
		return nil, fmt.Errorf("network state: %w", err)
	}
	c := &CNI{
		stateDir: stateDir, log: log, env: pluginEnv(os.Environ(), cfg.PluginEnv), stop: func() {},
		entering: semaphore.NewWeighted(dialThreads), sync: checkpoint.Sync,
	}
	c.settings.Store(&cfg)
	c.newExec = func(o execOptions) invoke.Exec {
		return &executor{env: c.env, execOptions: o}
	}
	c.health = newHealth(c)
	return c, nil
}

// cfg returns the present configuration.
func (c *CNI) cfg() *Config { return c.settings.Load() }

// Reconfigure replaces the configuration, which must be valid. Attachments in progress use the former one; a running
// STATUS of the plugins is aborted and rerun. It must not be called after Close.
func (c *CNI) Reconfigure(cfg Config) {
	c.watching.Lock()
	defer c.watching.Unlock()
	c.stop()
	c.running.Wait()
	c.settings.Store(&cfg)
	c.start()
}

// start reads the configuration once, so that Ready has an answer, and then watches it.
func (c *CNI) start() {
	ctx, cancel := context.WithCancel(context.Background())
	c.stop = cancel
	dir := c.cfg().ConfDir
	state := confState(dir) // before it is read: a change in between is one
	c.health.readConf()
	c.running.Go(func() { watchConf(ctx, dir, state, c.health.wake) })
	c.running.Go(func() { c.health.run(ctx) })
}

// Close stops the watch. Attachments in progress continue.
func (c *CNI) Close() error {
	c.watching.Lock()
	defer c.watching.Unlock()
	c.stop()
	c.running.Wait()
	return nil
}

// Ready returns nil if a pod's ADD can be expected to work, otherwise an errdefs.ErrUnavailable with the reason. It
// answers from memory and never waits for a plugin.
func (c *CNI) Ready() error { return c.health.ready() }

// libcni returns a driver for one operation.
func (c *CNI) libcni(o execOptions) *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir(c.cfg().BinDirs, c.cacheDir(), c.newExec(o))
}

// skippable returns the plugins to skip in ADD and DEL, nil to run all.
func (c *CNI) skippable() *reference.Idle {
	if !c.cfg().SkipIdlePlugins {
		return nil
	}
	return &c.idle
}

// cacheDir is the directory of results that libcni requires. podd does not use it: libcni writes it in place, and only
// after all plugins have succeeded.
func (c *CNI) cacheDir() string { return filepath.Join(c.stateDir, "libcni") }

// dropCache removes libcni's cached result of a pod: the record is the only source.
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
			if _, err := exec.FindInPath(name, c.cfg().BinDirs); err != nil {
				return err
			}
		}
	}
	return nil
}
