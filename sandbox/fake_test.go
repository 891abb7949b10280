package sandbox

import (
	"io"
	"path/filepath"
	"sync"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/image/imagetest"
	"github.com/podd-project/podd/network"
	"github.com/podd-project/podd/network/networktest"
	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/ocitest"
	"github.com/podd-project/podd/sandbox/budget"
	"github.com/podd-project/podd/sandbox/namespaces/namespacestest"
	"github.com/podd-project/podd/sandbox/sandboxtest"
)

// machine is the node under the engine, with the plugins' knowledge.
type machine struct {
	*sandboxtest.Machine
	// The fields of Machine.
	dir        string
	netnsDir   string
	namespaces *namespacestest.Fake
	network    *networktest.Fake
	images     *imagetest.Fake
	runtimes   map[string]*ocitest.Fake

	mu sync.Mutex
	// known are the pods and containers that the plugins were asked about and not told of the end of.
	known map[string]bool
}

const fakeImageID = sandboxtest.ImageID

func newMachine(t testing.TB) *machine {
	m := sandboxtest.New(t.TempDir(), "runc", "other", "vm", "gvisor")
	return &machine{
		Machine: m, dir: m.Dir, netnsDir: m.NetnsDir, namespaces: m.Namespaces, network: m.Network, images: m.Images,
		runtimes: m.Runtimes, known: map[string]bool{},
	}
}

func (m *machine) bundle(id string) string { return filepath.Join(m.dir, "run/containers", id) }

// leaks lists what is left on the machine.
func (m *machine) leaks() []string {
	left := m.Leaks()
	m.mu.Lock()
	defer m.mu.Unlock()
	for id := range m.known {
		left = append(left, "known to plugins: "+id)
	}
	return left
}

func (m *machine) attachments() []string {
	ids, _ := m.network.Attachments() // the fake has no errors
	return ids
}

// attach attaches a pod that no record knows.
func (m *machine) attach(t *testing.T, id string) {
	t.Helper()
	_, err := m.network.Setup(t.Context(), network.Request{PodID: id, Netns: m.dir})
	must(t, err)
}

// makeRootfs makes root filesystems that no record knows.
func (m *machine) makeRootfs(t *testing.T, containers ...string) {
	t.Helper()
	for _, id := range containers {
		_, err := m.images.Rootfs(t.Context(), image.RootfsRequest{ContainerID: id, ImageID: fakeImageID})
		must(t, err)
	}
}

func (m *machine) pidsAlive() (n int) {
	for _, f := range m.runtimes {
		n += f.Running()
	}
	return n
}

// exit ends a container by itself.
func (m *machine) exit(id string, x oci.Exit) {
	for _, f := range m.runtimes {
		f.Exit(id, x)
	}
}

// reboot reboots the machine; plugins forget.
func (m *machine) reboot(t *testing.T) {
	t.Helper()
	must(t, m.Reboot())
	m.mu.Lock()
	clear(m.known)
	m.mu.Unlock()
}

// deps are the mechanisms as a daemon opens them; h gets all calls.
func (m *machine) deps(h *faults) Deps {
	namespaces, network, images := m.namespaces.Reopen(), m.network.Reopen(), m.images.Reopen()
	namespaces.Before, namespaces.After = h.before, h.after
	network.Before, network.After = h.before, h.after
	images.Before, images.After = h.before, h.after
	return Deps{
		Budgets:    budget.New(1, 1, 1),
		Records:    fakeRecords{h: h},
		Plugins:    m.newPlugins(h),
		Namespaces: namespaces, Network: network, Images: images, Mounter: m.Mounter(h.before, h.after),
		Runtimes: map[string]Runtime{
			"runc": m.runtime(h, "runc"), "other": m.runtime(h, "other"), "gvisor": ownKernel{m.runtime(h, "gvisor")},
		},
	}
}

func discardLog() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

// runtime is a handler as a daemon opens it.
func (m *machine) runtime(h *faults, handler string) *ocitest.Fake {
	f := m.runtimes[handler].Reopen()
	f.Before, f.After = h.before, h.after
	return f
}
