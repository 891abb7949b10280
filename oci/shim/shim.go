// Package shim drives containers through containerd shims (runtime v2): programs that run a pod in a sandbox of their
// kind, such as gVisor's kernel or a virtual machine, with a ttrpc API. It implements oci.Runtime for handlers of type
// "shim", as package runc does for those of type "oci".
//
// One shim serves one pod: the container whose PodID is its own id starts it, the others join. A small process per
// container (package stdio) holds its output, so that neither it nor the shim needs podd to be running. All state is
// in the bundles, <RunDir>/<id>: a new Runtime continues after a crash. A shim that dies or hangs harms its pod only:
// every call has a deadline, and Delete needs no shim.
//
// The package knows no image, network or CRI. The sandbox engine calls it through oci.Runtime.
package shim

import (
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/lock"
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
	// Stdio is the path of the stdio program, see InstallStdio.
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
	// HostKernel is true if containers of this handler run in the host's kernel. That of containerd-shim-runc-* is
	// known.
	HostKernel bool
	// CreateTimeout bounds one Create; 0 means one minute. CallTimeout bounds every other call; 0 means 10 seconds.
	CreateTimeout, CallTimeout time.Duration
	// Log receives errors of background work, such as a stdio process that had to be restarted. It must be set.
	Log logrus.FieldLogger
}

// defaultCallTimeout is Config.CallTimeout unless set.
const defaultCallTimeout = 10 * time.Second

// namespace is the containerd namespace of all containers: the one that shims know from Kubernetes.
const namespace = "k8s.io"

// Runtime drives the containers of one handler. It holds connections but no state. It is safe for concurrent use. Two
// calls that change the same container must not overlap, but Signal, Delete, State and Wait may overlap any call.
type Runtime struct {
	cfg    Config
	probes *driver.ProbeCache[oci.Features]

	waiters driver.Waiters
	// stdioLocks serialises restarts of stdio processes, by container.
	stdioLocks lock.Keyed

	mu sync.Mutex
	// conns are the connections to shims, by address.
	conns map[string]*conn
	// sessions are the directories of the commands that this daemon is connected to.
	sessions map[string]bool
	closed   bool
	// work is background work.
	work sync.WaitGroup
}

// New returns the handler. It runs nothing and never fails: Ready reports whether the handler can be used.
func New(cfg Config) *Runtime {
	if cfg.CreateTimeout <= 0 {
		cfg.CreateTimeout = driver.DefaultCreateTimeout
	}
	if cfg.CallTimeout <= 0 {
		cfg.CallTimeout = defaultCallTimeout
	}
	cfg.Log = cfg.Log.WithField("handler", cfg.Name)
	cfg.HostKernel = cfg.HostKernel || strings.HasPrefix(filepath.Base(cfg.Path), "containerd-shim-runc-")
	// The shim and its runtime run in other directories.
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

// Close closes the connections to shims. Containers keep running; calls of Wait return.
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

// runBackground runs f without waiting. Close waits for it, and a closed handler runs nothing more.
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

// bundle returns the container's bundle. The error is that of driver.NewBundle.
func (r *Runtime) bundle(id string) (bundle, error) {
	b, err := driver.NewBundle(r.cfg.RunDir, id)
	return bundle{b}, err
}
