// Package shim drives containers by way of containerd shims (runtime v2): programs that hold a sandbox of their own
// kind, such as gVisor's kernel or a virtual machine, and are spoken to over ttrpc. It does for handlers of type "shim"
// what package oci does, with conmon and a runtime binary, for those of type "oci"; the engine sees no difference.
//
// One shim serves one pod: the container whose PodID is its own id starts it, the others join. Output is kept by a small
// process per container (package keeper), so that neither it nor the shim needs podd to be running. All state is in
// the bundles, <RunDir>/<id>: a new Runtime goes on where a dead daemon's left off. A shim that dies or hangs harms
// its pod only: every call has a deadline, and Delete needs no shim.
//
// The package knows no image, network or CRI. It shares package oci's types, because a handler is a handler. The
// sandbox engine is its only caller.
package shim

import (
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/driver"
)

// Config configures one handler of type "shim".
type Config struct {
	// Name is the RuntimeClass handler name.
	Name string
	// Path of the shim binary (containerd-shim-<name>-<version>), or its bare name, looked up in SearchPath.
	Path string
	// SearchPath lists the directories that are searched for bare names.
	SearchPath []string
	// Root is the handler's own directory: the runtime's state, sockets, the generated options.
	Root string
	// RunDir holds one directory per container: <RunDir>/<id>.
	RunDir string
	// Keeper is the program that keeps output, see InstallKeeper.
	Stdio string
	// Runtime is the OCI runtime that the shim runs (runc, runsc), path or bare name; empty leaves it to the shim.
	Runtime string
	// ConfigPath is the shim's or VM runtime's own configuration file (Kata's configuration.toml, gVisor's runsc.toml).
	// Options are then not used.
	ConfigPath string
	// Options are the shim's options, as in the runtime options of containerd's configuration.
	Options map[string]any
	// SystemdCgroup chooses the systemd cgroup driver.
	SystemdCgroup bool
	// HostKernel says that containers of this handler run on the host's kernel, which is known of
	// containerd-shim-runc-*.
	HostKernel bool
	// CreateTimeout bounds one Create; 0 means one minute. CallTimeout bounds every other call; 0 means 10 seconds.
	CreateTimeout, CallTimeout time.Duration
	// Log is told what nobody is there to be told, such as a keeper that had to be started again.
	Log logrus.FieldLogger
}

const (
	defaultCreateTimeout = time.Minute
	defaultCallTimeout   = 10 * time.Second
)

// namespace is what shims call a group of containers. It is the one that the shims of Kubernetes pods know.
const namespace = "k8s.io"

// Runtime drives the containers of one handler. It holds connections but no state. Safe for concurrent use; two verbs
// that change the same container must not overlap, but Signal, Delete, State and Wait may overlap anything.
type Runtime struct {
	cfg    Config
	probes *driver.ProbeCache[oci.Features]

	waiters driver.Waiters
	// keepers serialises restarts of keepers, by container.
	stdioLocks driver.KeyedLock

	mu sync.Mutex
	// conns are the connections to shims, by address.
	conns map[string]*conn
	// sessions are the directories of the commands that this daemon is connected to.
	sessions map[string]bool
	closed   bool
	// work is what goes on after the call that began it.
	work sync.WaitGroup
}

// New returns the handler. It runs nothing and never fails: Ready says whether the handler can be used.
func New(cfg Config) *Runtime {
	if cfg.CreateTimeout <= 0 {
		cfg.CreateTimeout = defaultCreateTimeout
	}
	if cfg.CallTimeout <= 0 {
		cfg.CallTimeout = defaultCallTimeout
	}
	if cfg.Log == nil {
		cfg.Log = logrus.StandardLogger()
	}
	cfg.Log = cfg.Log.WithField("handler", cfg.Name)
	cfg.HostKernel = cfg.HostKernel || strings.HasPrefix(filepath.Base(cfg.Path), "containerd-shim-runc-")
	// The shim and its runtime work in other directories.
	for _, path := range []*string{&cfg.RunDir, &cfg.Root, &cfg.ConfigPath, &cfg.Stdio} {
		if *path == "" {
			continue
		}
		if abs, err := filepath.Abs(*path); err == nil {
			*path = abs
		}
	}
	r := &Runtime{cfg: cfg, conns: map[string]*conn{}, sessions: map[string]bool{}}
	r.probes = driver.NewProbeCache(cfg.Name, r.defaultFeatures(), r.probe)
	return r
}

// Close closes the connections to shims. Containers go on; calls of Wait return.
func (r *Runtime) Close() error {
	r.mu.Lock()
	r.closed = true
	conns := r.conns
	r.conns = map[string]*conn{}
	r.mu.Unlock()
	for _, c := range conns {
		_ = c.client.Close() // its socket may be gone already
	}
	r.work.Wait() // without a connection it ends at once
	return nil
}

// background runs what the caller does not wait for, but Close does. A closed handler runs nothing more.
func (r *Runtime) runBackground(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.work.Go(f)
	}
}

func (r *Runtime) lookup(name string) (string, error) {
	return driver.LookPath(r.cfg.Name, name, r.cfg.SearchPath)
}

// bundle names the container's directory, or refuses the id.
func (r *Runtime) bundle(id string) (bundle, error) {
	b, err := driver.NewBundle(r.cfg.RunDir, id)
	return bundle{b}, err
}
