package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// StartBare starts what Kubernetes' own node tests expect of a machine: an image registry, and one host with a podd
// that has a network for pods. The tests start their own kubelet and API server.
func StartBare(ctx context.Context, o Options) (*Cluster, error) {
	if len(o.Nodes) != 1 {
		return nil, fmt.Errorf("%d nodes, want one", len(o.Nodes))
	}
	c, err := layOut(o)
	if err != nil {
		return nil, err
	}
	n := c.Nodes[0]
	n.PodCIDR = c.Net.Prefix + ".128.0/24"
	for _, step := range []func() error{
		c.save, c.issueAll, c.Control.boot, c.wireControl, c.save, func() error { return c.startRegistry(ctx) },
		n.layOut, n.giveNetwork, func() error { return c.bootNode(n) }, n.imitateMachine,
		func() error { return n.StartPodd(ctx) }, c.routeAll, c.save,
	} {
		if err := step(); err != nil {
			return nil, errors.Join(err, c.stop())
		}
	}
	return c, nil
}

// giveNetwork writes a CNI configuration. Without a controller manager no pod CIDR is assigned, from which podd would
// write it.
func (n *Node) giveNetwork() error {
	list := fmt.Appendf(nil, `{"cniVersion": "1.0.0", "name": "pods", "plugins": [
	{"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
	 "ipam": {"type": "host-local", "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}},
	{"type": "portmap", "capabilities": {"portMappings": true}}]}
`, n.PodCIDR)
	return os.WriteFile(n.Path("net.d", "10-pods.conflist"), list, 0o644)
}

// imitateMachine prepares the host for assumptions of the node tests. The kubelet's directory, whose path is built in,
// must be on a filesystem that supports idmapped mounts, which the overlay on the host's /var/lib does not. systemd-run
// is hidden, because the tests use systemd if that program exists.
func (n *Node) imitateMachine() error {
	return n.do(func() error {
		if err := os.MkdirAll("/var/lib/kubelet", 0o755); err != nil {
			return err
		}
		err := unix.Mount(n.Path("kubelet"), "/var/lib/kubelet", "", unix.MS_BIND, "")
		if program, found := exec.LookPath("systemd-run"); found == nil {
			err = errors.Join(err, unix.Mount("/dev/null", program, "", unix.MS_BIND, ""))
		}
		return err
	})
}

// Exec runs a program on the host, in a directory, with its output in out. When the context ends, the program's process
// group gets SIGTERM.
func (h *Host) Exec(ctx context.Context, out io.Writer, dir, program string, args ...string) error {
	return h.do(func() error {
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Stdout, cmd.Stderr, cmd.Dir = out, out, dir
		// A process group of its own, because the program does not forward SIGTERM to its children.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
		cmd.WaitDelay = 3 * time.Minute
		return cmd.Run()
	})
}
