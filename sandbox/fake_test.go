package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/network"
	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/namespaces"
)

// machine is the fake node under the engine: what exists on it outlives the engines that drive it, as on a real one.
type machine struct {
	dir string

	mu         sync.Mutex
	pins       map[string]bool
	attached   map[string]bool
	leases     map[string][]string
	shm        map[string]bool
	rootfs     map[string]bool
	containers map[string]*fakeContainer
	nextPid    int
	// waitErrors is how many calls of Wait fail.
	waitErrors int
	// listener is where every port of every pod is served.
	listener string
	// commandError is returned by Create.
	commandError error
	// Stubborn containers ignore everything but SIGKILL, deaf ones that too, and immortal ones cannot even be deleted.
	stubborn, deaf, immortal bool
}

type fakeContainer struct {
	status oci.Status
	pid    int
	exit   oci.Exit
	gone   chan struct{}
	log    int
	update []*specs.LinuxResources
}

func newMachine(t testing.TB) *machine {
	return &machine{
		dir: t.TempDir(), pins: map[string]bool{}, attached: map[string]bool{}, leases: map[string][]string{}, shm: map[string]bool{},
		rootfs: map[string]bool{}, containers: map[string]*fakeContainer{}, nextPid: 1000,
	}
}

// leaks lists what is left on the machine.
func (m *machine) leaks() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var left []string
	for what, set := range map[string]map[string]bool{"pin": m.pins, "attachment": m.attached, "shm": m.shm, "rootfs": m.rootfs} {
		for name := range set {
			left = append(left, what+" "+name)
		}
	}
	for id := range m.containers {
		left = append(left, "container "+id)
	}
	for _, pattern := range []string{"root/pods/*", "root/pods/.*", "run/pods/*", "run/containers/*", "root/quarantine/*"} {
		files, _ := filepath.Glob(filepath.Join(m.dir, pattern))
		for _, f := range files {
			left = append(left, "file "+f)
		}
	}
	slices.Sort(left)
	return left
}

func (m *machine) pidsAlive() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, c := range m.containers {
		if c.status != oci.Stopped {
			n++
		}
	}
	return n
}

// reboot is what a reboot does to the machine: /run, processes and mounts are gone, CNI's own state is not.
func (m *machine) reboot(t *testing.T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.containers {
		if c.status != oci.Stopped {
			close(c.gone)
		}
	}
	clear(m.pins)
	clear(m.shm)
	clear(m.containers)
	if err := os.RemoveAll(filepath.Join(m.dir, "run")); err != nil {
		t.Fatal(err)
	}
}

// fakeHost is one engine's hold on the machine. It counts outside calls and can fail or crash at one of them.
type fakeHost struct {
	m *machine

	mu    sync.Mutex
	calls []string
	// failAt is the number of the call that fails, from 1; 0 for none. With after the call has its effect first.
	failAt int
	after  bool
	// crash ends the calling goroutine at failAt instead, and every later one: the daemon is dead.
	crash bool
	dead  chan struct{}
	// block makes calls of a name wait until the channel is closed or their context ends.
	block map[string]chan struct{}
	// held are the names of the calls that came to a block.
	held []string
	// request is the last one that the network was asked for.
	request network.Request
}

var errInjected = errors.New("injected failure")

func newHost(m *machine) *fakeHost {
	return &fakeHost{m: m, dead: make(chan struct{}), block: map[string]chan struct{}{}}
}

func (h *fakeHost) callNames() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.calls)
}

func (h *fakeHost) heldNames() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.held)
}

// kill makes the engine of this host a dead one.
func (h *fakeHost) kill() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.die()
}

func (h *fakeHost) die() {
	select {
	case <-h.dead:
	default:
		close(h.dead)
	}
}

// call is one call from the engine to the outside.
func (h *fakeHost) call(ctx context.Context, name string, effect func() error) error {
	h.mu.Lock()
	h.calls = append(h.calls, name)
	failing, crash, after := len(h.calls) == h.failAt, h.crash, h.after
	if failing && crash && !after {
		h.die()
	}
	block := h.block[name]
	if block != nil {
		h.held = append(h.held, name)
	}
	h.mu.Unlock()
	h.exitIfDead()
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if failing && !after {
		return errInjected
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	err := func() error {
		h.m.mu.Lock()
		defer h.m.mu.Unlock()
		return effect()
	}()
	if failing && crash {
		h.kill()
		h.exitIfDead()
	}
	if failing {
		return errInjected
	}
	return err
}

func (h *fakeHost) exitIfDead() {
	select {
	case <-h.dead:
		runtime.Goexit()
	default:
	}
}

func (h *fakeHost) Pin(ctx context.Context, r namespaces.Request) error {
	return h.call(ctx, "pin", func() error {
		for _, path := range []string{r.Net, r.IPC, r.UTS, r.User} {
			if path == "" {
				continue
			}
			h.m.pins[path] = true
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
				return err
			}
		}
		return nil
	})
}

func (h *fakeHost) Sysctl(ctx context.Context, _ string, _ map[string]string) error {
	return h.call(ctx, "sysctl", func() error { return nil })
}

func (h *fakeHost) Unpin(ctx context.Context, paths ...string) error {
	return h.call(ctx, "unpin", func() error {
		for _, path := range paths {
			delete(h.m.pins, path)
			os.Remove(path)
		}
		return nil
	})
}

func (h *fakeHost) Setup(ctx context.Context, r network.Request) (network.Result, error) {
	err := h.call(ctx, "cni add", func() error {
		h.request = r
		if !h.m.pins[r.Netns] {
			return fmt.Errorf("no network namespace at %s", r.Netns)
		}
		h.m.attached[r.PodID] = true
		return nil
	})
	return network.Result{IPs: []netip.Addr{netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("fd00::3")}, Interface: "eth0"}, err
}

func (h *fakeHost) Teardown(ctx context.Context, podID string) error {
	return h.call(ctx, "cni del", func() error { delete(h.m.attached, podID); return nil })
}

func (h *fakeHost) Ready() error { return nil }

func (h *fakeHost) Dial(ctx context.Context, podID string, port uint16) (net.Conn, error) {
	var conn net.Conn
	err := h.call(ctx, "dial", func() (err error) {
		conn, err = net.Dial("tcp", h.m.listener)
		return err
	})
	return conn, err
}

func (h *fakeHost) Pinned(dir string) ([]string, error) {
	return filepath.Glob(filepath.Join(dir, "*"))
}

func (h *fakeHost) Abandon(ctx context.Context, r network.Request) error {
	return h.call(ctx, "cni abandon", func() error { delete(h.m.attached, r.PodID); delete(h.m.leases, r.PodID); return nil })
}

func (h *fakeHost) Leases() (map[string][]string, error) {
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	return maps.Clone(h.m.leases), nil
}

func (h *fakeHost) Attachments() ([]string, error) { return h.m.keys(h.m.attached), nil }

func (h *fakeHost) GC(ctx context.Context, living func() []string) error {
	return h.call(ctx, "cni gc", func() error {
		keep := living()
		maps.DeleteFunc(h.m.attached, func(id string, _ bool) bool { return !slices.Contains(keep, id) })
		return nil
	})
}

func (h *fakeHost) ContainersWithMounts(context.Context) ([]string, error) {
	return h.m.keys(h.m.rootfs), nil
}

func (m *machine) keys(set map[string]bool) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(set))
}

const fakeImageID = "1111111111111111111111111111111111111111111111111111111111111111"

func (h *fakeHost) Resolve(_ context.Context, ref string) (*image.Image, error) {
	if ref == "absent" {
		return nil, fmt.Errorf("image %q: %w", ref, errdefs.ErrNotFound)
	}
	return &image.Image{ID: fakeImageID, Tags: []string{"docker.io/library/busybox:latest"}, Config: v1.ImageConfig{Cmd: []string{"/bin/sh"}}}, nil
}

func (h *fakeHost) Rootfs(ctx context.Context, r image.RootfsRequest) (string, error) {
	path := filepath.Join(h.m.dir, "rootfs", r.ContainerID)
	return path, h.call(ctx, "rootfs", func() error { h.m.rootfs[r.ContainerID] = true; return os.MkdirAll(path, 0o755) })
}

func (h *fakeHost) Volume(ctx context.Context, r image.VolumeRequest) (string, error) {
	path := filepath.Join(h.m.dir, "rootfs", fmt.Sprintf("%s-%d", r.ContainerID, r.Index))
	return path, h.call(ctx, "volume", func() error { h.m.rootfs[r.ContainerID] = true; return os.MkdirAll(path, 0o755) })
}

func (h *fakeHost) Release(ctx context.Context, containerID string) error {
	return h.call(ctx, "release", func() error { delete(h.m.rootfs, containerID); return nil })
}

func (h *fakeHost) Mount(ctx context.Context, path string, _, _ uint32, _ string) error {
	return h.call(ctx, "shm", func() error { h.m.shm[path] = true; return nil })
}

func (h *fakeHost) Unmount(ctx context.Context, path string) error {
	return h.call(ctx, "unshm", func() error { delete(h.m.shm, path); return nil })
}

// fakeRuntime is a fakeHost as a Runtime: Ready means another thing there.
type fakeRuntime struct {
	*fakeHost
	err error
}

func (r *fakeRuntime) Ready() error { return r.err }
func (r *fakeRuntime) Features() oci.Features {
	return oci.Features{Version: "fake", OCIVersion: "1.0.2", RecursiveReadOnly: true, UserNamespaces: true}
}

func (r *fakeRuntime) Create(ctx context.Context, q oci.CreateRequest) (oci.Process, error) {
	var p oci.Process
	err := r.call(ctx, "create", func() error {
		if r.m.commandError != nil {
			return r.m.commandError
		}
		r.m.nextPid++
		p = oci.Process{Pid: r.m.nextPid, Start: uint64(r.m.nextPid)}
		r.m.containers[q.ID] = &fakeContainer{status: oci.Created, pid: p.Pid, gone: make(chan struct{})}
		return r.m.writeBundle(q)
	})
	return p, err
}

func (r *fakeRuntime) Start(ctx context.Context, id string) error {
	return r.call(ctx, "start", func() error {
		c := r.m.containers[id]
		if c == nil || c.status != oci.Created {
			return fmt.Errorf("container %s is not created", id)
		}
		c.status = oci.Running
		return nil
	})
}

func (r *fakeRuntime) Signal(ctx context.Context, id string, sig syscall.Signal) error {
	return r.call(ctx, "signal "+sig.String(), func() error {
		c := r.m.containers[id]
		if c == nil || r.m.deaf || r.m.immortal || (r.m.stubborn && sig != syscall.SIGKILL) {
			return nil
		}
		c.end(oci.Exit{Code: 128 + int32(sig), At: time.Now(), Known: true})
		return nil
	})
}

func (c *fakeContainer) end(x oci.Exit) {
	if c.status != oci.Stopped {
		c.status, c.exit = oci.Stopped, x
		close(c.gone)
	}
}

// exit ends a container by itself.
func (m *machine) exit(id string, x oci.Exit) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.containers[id].end(x)
}

func (r *fakeRuntime) Delete(ctx context.Context, id string) error {
	return r.call(ctx, "delete", func() error {
		if c := r.m.containers[id]; c != nil {
			if r.m.immortal && c.status != oci.Stopped {
				return fmt.Errorf("%w: process %d survives SIGKILL", context.DeadlineExceeded, c.pid)
			}
			c.end(oci.Exit{Code: 137, At: time.Now(), Known: true})
			delete(r.m.containers, id)
		}
		return os.RemoveAll(r.m.bundle(id))
	})
}

func (m *machine) bundle(id string) string { return filepath.Join(m.dir, "run/containers", id) }

func (m *machine) writeBundle(q oci.CreateRequest) error {
	data, err := json.Marshal(q.Spec)
	return errors.Join(err, os.MkdirAll(m.bundle(q.ID), 0o700), os.WriteFile(filepath.Join(m.bundle(q.ID), "config.json"), data, 0o600))
}

func (r *fakeRuntime) State(ctx context.Context, id string) (s oci.State, err error) {
	s.Status = oci.Absent
	err = r.call(ctx, "state", func() error {
		if c := r.m.containers[id]; c != nil {
			s = oci.State{Status: c.status, Process: oci.Process{Pid: c.pid, Start: uint64(c.pid)}}
		}
		return nil
	})
	return s, err
}

// Wait is not counted: it goes on beside everything else.
func (r *fakeRuntime) Wait(ctx context.Context, id string) (oci.Exit, error) {
	r.m.mu.Lock()
	c := r.m.containers[id]
	failing := r.m.waitErrors > 0
	if failing {
		r.m.waitErrors--
	}
	r.m.mu.Unlock()
	switch {
	case failing:
		return oci.Exit{}, errInjected
	case c == nil:
		return oci.Exit{}, fmt.Errorf("container %s: %w", id, errdefs.ErrNotFound)
	}
	select {
	case <-c.gone:
	case <-ctx.Done():
		return oci.Exit{}, context.Cause(ctx)
	case <-r.dead:
		runtime.Goexit()
	}
	r.exitIfDead()
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	return c.exit, nil
}

func (r *fakeRuntime) ExecSync(ctx context.Context, q oci.ExecRequest) (oci.ExecResult, error) {
	return oci.ExecResult{Stdout: []byte(strings.Join(q.Process.Args, " "))}, r.call(ctx, "exec", func() error { return nil })
}

func (r *fakeRuntime) Exec(ctx context.Context, _ string, p *specs.Process, s oci.Streams) (int32, error) {
	return 3, r.call(ctx, "exec", func() error {
		_, err := fmt.Fprint(s.Stdout, strings.Join(p.Args, " "), p.Terminal)
		return err
	})
}

func (r *fakeRuntime) Attach(ctx context.Context, _ string, s oci.Streams) error {
	return r.call(ctx, "attach", func() error {
		_, err := io.WriteString(s.Stdout, "attached")
		return err
	})
}

func (r *fakeRuntime) Update(ctx context.Context, id string, res *specs.LinuxResources) error {
	return r.call(ctx, "update", func() error {
		c := r.m.containers[id]
		c.update = append(c.update, res)
		return nil
	})
}

func (r *fakeRuntime) ReopenLog(ctx context.Context, id string) error {
	return r.call(ctx, "reopen log", func() error { r.m.containers[id].log++; return nil })
}
