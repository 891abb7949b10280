package shim

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	types "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/podd-project/podd/oci/vm/image"
	"github.com/podd-project/podd/oci/vm/jail"
	"github.com/podd-project/podd/oci/vm/kernel"
	"github.com/podd-project/podd/oci/vm/vmm"
)

// unikernel is a container: a machine, or the infra container, which has none.
type unikernel struct {
	id, bundle string
	arguments  []string
	size       size
	// memory is that of the machine, in MiB.
	memory int
	// files are open, and the image is mounted, until the start, output is open until the end. unmount is nil for the
	// infra container.
	files   kernel.Files
	unmount func() error
	output  output

	mu sync.Mutex
	// running is true from the start on, machine nil for the infra container.
	running bool
	machine *vmm.Machine
	// ended is closed when the container has ended, with code at the time.
	ended chan struct{}
	code  uint32
	at    time.Time
}

func (u *unikernel) hasEnded() bool {
	select {
	case <-u.ended:
		return true
	default:
		return false
	}
}

func (u *unikernel) status() types.Status {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.hasEnded():
		return types.Status_STOPPED
	case u.running:
		return types.Status_RUNNING
	}
	return types.Status_CREATED
}

// exit is how a container that has ended did.
func (u *unikernel) exit() (uint32, *timestamppb.Timestamp) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.code, timestamppb.New(u.at)
}

// run notes that the container runs.
func (u *unikernel) run(m *vmm.Machine) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.release() // the jail has separate mounts
	u.running, u.machine = true, m
}

// release closes the files of the image and unmounts it. Not earlier: of a file on a mount that is gone the jail could
// not get a mount. It can be called again.
func (u *unikernel) release() {
	u.files.Close()
	if u.unmount == nil {
		return
	}
	if err := u.unmount(); err != nil { // the caller removes it with the bundle
		log.L.WithError(err).Warn("failed to unmount the image of a unikernel")
	}
	u.unmount = nil
}

// end notes that it has ended. Only the first end counts.
func (u *unikernel) end(code int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.hasEnded() {
		u.release()
		u.output.Close() // the caller reads until then
		u.code, u.at = uint32(code), time.Now()
		close(u.ended)
	}
}

// kill ends the machine, at once with SIGKILL. One that was not started has been killed then. Signal 0 does nothing.
func (u *unikernel) kill(signal syscall.Signal) error {
	u.mu.Lock()
	m := u.machine
	u.mu.Unlock()
	switch {
	case signal == 0:
	case m == nil:
		u.end(killedStatus)
	case signal == syscall.SIGKILL:
		m.Stop(0)
		<-u.ended
	default:
		return u.powerDown(m)
	}
	return nil
}

// powerDown asks the machine to end. One that is just ending needs not be asked.
func (u *unikernel) powerDown(m *vmm.Machine) error {
	err := m.PowerDown()
	if err == nil {
		return nil
	}
	select {
	case <-u.ended:
		return nil
	case <-time.After(endGrace):
		return err
	}
}

// boot starts the machine of a container.
func (s *unikernels) boot(u *unikernel) (err error) {
	kvm := s.options.useKVM()
	j, err := s.newJail(u, kvm)
	if err != nil {
		return err
	}
	var network network
	defer func() {
		if err != nil {
			network.closeTaps()
			j.Close()
		}
	}()
	if network, err = connectNetwork(j, s.options.Driver == vmm.QEMU); err != nil {
		return fmt.Errorf("network: %w", err)
	}
	arguments, err := network.forKernel(s.infra.Hostname).Expand(u.arguments)
	if err != nil {
		return err
	}
	config := vmm.Config{
		Kernel: "/" + image.KernelFile, Shared: jail.Shared, Temp: jail.Temp, MemoryDir: jail.Memory, Memory: u.memory,
		CPUs: u.size.processors(s.options.Driver, runtime.NumCPU()), KVM: kvm, NICs: network.nics,
		User: monitorUser(),
		Bare: &vmm.Bare{Arguments: arguments, Output: u.output.machine()},
	}
	if u.files.Initrd != nil {
		config.Initrd = "/" + image.InitrdFile
	}
	m, err := vmm.Start(j, s.options.Driver, config)
	if err != nil {
		return err
	}
	u.run(m)
	go func() {
		<-m.Ended()
		j.Close()
		u.end(m.ExitCode())
	}()
	return nil
}

// newJail makes the jail of a machine. Its monitor serves no files of many users, and so keeps no capabilities.
func (s *unikernels) newJail(u *unikernel, kvm bool) (*jail.Jail, error) {
	netns, err := networkNamespace(s.infra)
	if err != nil {
		return nil, err
	}
	var files map[string]string
	if s.options.Driver == vmm.UML { // its own kernel, which has been compared, and its libraries
		if files, err = imageFiles(s.options); err != nil {
			return nil, err
		}
		delete(files, "/"+image.InitrdFile)
	} else {
		files = monitorFiles(kvm)
		files["/"+image.KernelFile] = descriptorPath(u.files.Kernel.Fd())
	}
	if u.files.Initrd != nil {
		files["/"+image.InitrdFile] = descriptorPath(u.files.Initrd.Fd())
	}
	return jail.New(jail.Config{Netns: netns, Bundle: u.bundle, Files: files, Memory: u.memory, User: monitorUser()})
}

func descriptorPath(fd uintptr) string { return filepath.Join("/proc/self/fd", fmt.Sprint(fd)) }

// forKernel is what arguments can name: the first interface with an address, and the default routes.
func (n network) forKernel(hostname string) kernel.Network {
	k := kernel.Network{Hostname: hostname}
	for _, i := range n.interfaces {
		if len(i.Addresses) > 0 && k.MAC == "" {
			k.MAC = i.MAC
			for _, a := range i.Addresses {
				k.AddAddress(a)
			}
		}
	}
	for _, r := range n.routes {
		k.AddRoute(r.Destination, r.Gateway)
	}
	return k
}

// output are the named pipes of a container's stdout and stderr, nil if the request names none. A machine has one
// console, and so writes to stdout only.
type output struct{ stdout, stderr *os.File }

// openOutput opens the pipes for reading and writing: then open does not block until there is a reader, and the machine
// does not fail to write while the caller's reader is restarted.
func openOutput(stdout, stderr string) (o output, err error) {
	if o.stdout, err = openPipe(stdout); err == nil {
		o.stderr, err = openPipe(stderr)
	}
	if err != nil {
		o.Close()
		return output{}, fmt.Errorf("output: %w", err)
	}
	return o, nil
}

func openPipe(path string) (*os.File, error) {
	if path == "" {
		return nil, nil
	}
	return os.OpenFile(path, os.O_RDWR, 0)
}

// machine gets the output of a machine.
func (o output) machine() io.Writer {
	if o.stdout == nil {
		return io.Discard
	}
	return o.stdout
}

// Close closes the pipes.
func (o output) Close() {
	_ = o.stdout.Close() // of nil, too
	_ = o.stderr.Close()
}

// started returns an error for a container without a machine.
func (u *unikernel) started() error {
	if u.status() != types.Status_RUNNING {
		return fmt.Errorf("container %s is not running: %w", u.id, errdefs.ErrFailedPrecondition)
	}
	return nil
}
