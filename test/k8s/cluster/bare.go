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
// that has a network for pods. The kubelet and the API server they bring themselves. agnhost is the directory with the
// program that most of their images are made of.
func StartBare(ctx context.Context, o Options, agnhost string) (*Cluster, error) {
	if len(o.Nodes) != 1 {
		return nil, fmt.Errorf("%d nodes, want one", len(o.Nodes))
	}
	c, err := layOut(o)
	if err != nil {
		return nil, err
	}
	c.agnhost = agnhost
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

// giveNetwork writes the configuration that podd would make of the pod CIDR, which nobody assigns here.
func (n *Node) giveNetwork() error {
	list := fmt.Appendf(nil, `{"cniVersion": "1.0.0", "name": "pods", "plugins": [
	{"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
	 "ipam": {"type": "host-local", "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}},
	{"type": "portmap", "capabilities": {"portMappings": true}}]}
`, n.PodCIDR)
	return os.WriteFile(n.Path("net.d", "10-pods.conflist"), list, 0o644)
}

// imitateMachine sees to what the node tests take for granted. The kubelet's directory, whose path they have built in,
// is on a disk whose mounts can be given to a user namespace, which the host's /var/lib, an overlay, cannot. And there
// is no systemd, which they take a program's presence for.
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

// Exec runs a program on the host, in a directory, until it ends or the context does, which it is told with its
// children by SIGTERM; what it prints goes to out.
func (h *Host) Exec(ctx context.Context, out io.Writer, dir, program string, args ...string) error {
	return h.do(func() error {
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Stdout, cmd.Stderr, cmd.Dir = out, out, dir
		// A group of its own, as a terminal's ^C would end it: the program does not tell its children.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
		cmd.WaitDelay = 3 * time.Minute
		return cmd.Run()
	})
}
