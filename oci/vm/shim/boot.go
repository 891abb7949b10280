package shim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/log"
	"github.com/containerd/ttrpc"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/vm/image"
	"github.com/podd-project/podd/oci/vm/jail"
	"github.com/podd-project/podd/oci/vm/vmm"
	"github.com/podd-project/podd/oci/vm/wire"
)

// bootTimeout is how long a machine may take until its agent answers, on a slow machine without KVM.
const bootTimeout = 90 * time.Second

// consoleLines are the lines of the console in the error of a machine that does not start.
const consoleLines = 12

type bootRequest struct {
	id, bundle string
	spec       *specs.Spec
	options    Options
}

// boot starts the machine of a pod and sets it up. After an error nothing of it is left.
func (s *Service) boot(ctx context.Context, r bootRequest) (_ *pod, err error) {
	p := newPod(r.id, r.options)
	began := time.Now()
	defer func() {
		if err != nil {
			p.end(0)
		}
	}()
	if p.leaveCgroup, err = joinCgroup(r.spec.Linux.CgroupsPath); err != nil {
		return nil, err
	}
	netns, err := networkNamespace(r.spec)
	if err != nil {
		return nil, err
	}
	files, err := imageFiles(r.options)
	if err != nil {
		return nil, err
	}
	wanted := annotatedSize(r.spec)
	memory := r.options.size(wanted.memory)
	kvm := r.options.useKVM()
	if w := r.options.warning(); w != "" {
		log.G(ctx).Warn(w)
	}
	p.jail, err = jail.New(jail.Config{
		Netns: netns, Bundle: r.bundle, Files: files, Memory: memory, User: monitorUser(),
		Capabilities: append(jail.FileCapabilities(), startCapabilities()...),
	})
	if err != nil {
		return nil, err
	}
	network, err := connectNetwork(p.jail, r.options.Driver == vmm.QEMU)
	if err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	p.machine, err = vmm.Start(p.jail, r.options.Driver, vmm.Config{
		Kernel: "/" + image.KernelFile, Initrd: "/" + image.InitrdFile, Shared: jail.Shared, Temp: jail.Temp,
		MemoryDir: jail.Memory, Memory: memory, CPUs: wanted.processors(r.options.Driver, runtime.NumCPU()), KVM: kvm,
		NICs: network.nics, Limits: hostLimits(), User: monitorUser(),
	})
	if err != nil {
		return nil, err
	}
	started := time.Now()
	setup := wire.Pod{
		Hostname: r.spec.Hostname, Sysctls: r.spec.Linux.Sysctl, Interfaces: network.interfaces, Routes: network.routes,
	}
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	if err := p.connect(ctx, setup); err != nil {
		return nil, fmt.Errorf("%w; the end of its console:\n%s", err, p.machine.Console.Lines(consoleLines))
	}
	log.G(ctx).WithFields(log.Fields{
		"monitor": started.Sub(began), "kernel": p.greeted.Sub(started), "setup": time.Since(p.greeted),
	}).Info("the virtual machine has booted")
	go func() {
		s.watchEvents(p)
		p.loseLine()
	}()
	return p, nil
}

// startCapabilities are those that virtiofsd needs in addition until it serves files, except CAP_MKNOD, which it keeps:
// a container with that capability can make device nodes with runc, too. The monitor has none.
func startCapabilities() []uintptr {
	return []uintptr{unix.CAP_MKNOD, unix.CAP_SETPCAP, unix.CAP_SYS_CHROOT, unix.CAP_SYS_ADMIN}
}

// firstUser begins a range that no user database and no range of user namespaces reaches (systemd's table of UIDs).
const firstUser = 0x70000000

// monitorUser is the user of the pod's monitor, which no other process of the node has: monitors end with their shims,
// and each shim has another PID, of at most 22 bits.
func monitorUser() uint32 { return firstUser + uint32(os.Getpid()) }

// networkNamespace returns the path of the pod's.
func networkNamespace(spec *specs.Spec) (string, error) {
	for _, n := range spec.Linux.Namespaces {
		if n.Type == specs.NetworkNamespace && n.Path != "" {
			return n.Path, nil
		}
	}
	return "", invalid("the pod has no network namespace: a virtual machine cannot use the host's network")
}

// imageFiles are the files of the guest image, by their paths in the jail.
func imageFiles(o Options) (map[string]string, error) {
	dir := filepath.Join(o.Images, o.Driver)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("no guest image for driver %s: %w; build one with podd-vm-image", o.Driver, err)
	}
	files := map[string]string{}
	if o.Driver == vmm.QEMU {
		files = monitorFiles(o.useKVM())
	}
	for _, e := range entries {
		files["/"+e.Name()] = filepath.Join(dir, e.Name())
	}
	needed := []string{image.KernelFile, image.InitrdFile}
	if o.Driver == vmm.UML {
		needed = append(needed, image.VirtiofsdFile)
	}
	for _, name := range needed {
		if files["/"+name] == "" {
			return nil, fmt.Errorf("no file %s in %s: build the image with podd-vm-image", name, dir)
		}
	}
	return files, nil
}

// monitorFiles are QEMU, virtiofsd and their libraries, by their paths in the jail.
func monitorFiles(kvm bool) map[string]string {
	files := map[string]string{"/usr": "/usr"}
	if kvm {
		files["/dev/kvm"] = "/dev/kvm"
	}
	return files
}

// connect waits for the agent and has it set up the machine.
func (p *pod) connect(ctx context.Context, setup wire.Pod) error {
	line := p.machine.Line
	if deadline, ok := ctx.Deadline(); ok {
		if err := line.SetReadDeadline(deadline); err != nil {
			return err
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = line.Close() })
	defer stop()
	if err := wire.ReadHello(line); err != nil {
		if p.machine.HasEnded() {
			err = errors.New("it has ended")
		}
		return err
	}
	p.greeted = time.Now()
	if err := line.SetReadDeadline(noDeadline); err != nil {
		return err
	}
	var carrier io.ReadWriteCloser = line
	if p.machine.Paced {
		carrier = wire.NewPaced(line)
	}
	var err error
	if p.session, err = wire.Host(carrier, logWriter{}); err != nil {
		return err
	}
	tasks, err := p.open(ctx, wire.Header{Kind: wire.Task})
	if err != nil {
		return err
	}
	p.tasks = task.NewTTRPCTaskClient(ttrpc.NewClient(boundedConn{tasks}))
	c, err := p.open(ctx, wire.Header{Kind: wire.Setup})
	if err != nil {
		return err
	}
	defer c.Close()
	if err := wire.WriteBody(c, setup); err != nil {
		return err
	}
	return readResult(ctx, c)
}

// boundedConn is a stream that ends when a write waits for longer than callTimeout: ttrpc looks at the context of a
// call after it has written the request, and a guest may read nothing.
type boundedConn struct{ net.Conn }

func (c boundedConn) Write(b []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(callTimeout))
	n, err := c.Conn.Write(b)
	if err != nil {
		_ = c.Close() // part of a request was written
	}
	return n, err
}

// logWriter is the log of the session.
type logWriter struct{}

func (logWriter) Write(b []byte) (int, error) {
	log.L.WithField("session", string(b[:min(len(b), 200)])).Debug("session with the guest")
	return len(b), nil
}
