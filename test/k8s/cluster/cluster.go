// Package cluster runs Kubernetes on one machine: etcd, the API server, the controller manager and the scheduler on one
// host, and a podd and a kubelet on each node. A host is a network namespace and a mount namespace; a bridge connects
// the hosts. The machine itself has one network link, the processes, a cgroup for each node and one directory. Close
// removes all of that, also from another process than the one that called Start.
//
// It never uses a podd or a kubelet that it has not started: a kubelet kills all pods of its runtime that it does not
// know.
package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Options say what to start.
type Options struct {
	// Dir is the cluster's directory, which must not exist or be empty. Its path must be short, because those of unix
	// sockets are limited to 107 bytes.
	Dir string
	// Bin is the directory of the programs: podd, testimages, crictl, runc, cni/ and kube/.
	Bin string
	// Nodes are the nodes, at most 99.
	Nodes []NodeOptions
	// Kubeadm prepares the control plane for nodes that join by kubeadm, as `kubeadm init` does. Such a node's kubelet
	// has a certificate that it has signed itself.
	Kubeadm bool
	// Gates are feature gates that the control plane enables, in addition to those that are on by default.
	Gates []string
	// Agnhost is the directory of conformance/build.sh, for the images of Kubernetes' own tests.
	Agnhost string
	// Addons are further add-ons whose images the registry serves; Bin/addons has their programs.
	Addons []string
}

// Cluster is a running cluster.
type Cluster struct {
	Dir     string  `json:"dir"`
	Bin     string  `json:"bin"`
	Net     network `json:"net"`
	Control *Host   `json:"control"`
	Nodes   []*Node `json:"nodes"`
	// Processes are those of the control plane.
	Processes []Process `json:"processes"`
	// AuthRegistry is the host:port of the registry that requires credentials. The other registry is the mirror of the
	// public ones.
	AuthRegistry string `json:"authRegistry"`

	kubeadm bool
	gates   []string
	agnhost string
	addons  []string

	Client kubernetes.Interface `json:"-"`
	REST   *rest.Config         `json:"-"`
}

// stateFile is the file in the cluster's directory that Open reads.
const stateFile = "cluster.json"

// Start starts a cluster and returns when all nodes are ready. After an error only its directory with the logs is left.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	c, err := layOut(o)
	if err != nil {
		return nil, err
	}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

func layOut(o Options) (*Cluster, error) {
	if left, err := os.ReadDir(o.Dir); err == nil && len(left) > 0 {
		return nil, fmt.Errorf("%s is not empty, a cluster may be running there: %w", o.Dir, fs.ErrExist)
	}
	for _, sub := range []string{"", "log", "images"} {
		if err := os.MkdirAll(filepath.Join(o.Dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	net, err := freeNetwork()
	if err != nil {
		return nil, err
	}
	c := &Cluster{Dir: o.Dir, Bin: o.Bin, Net: net, kubeadm: o.Kubeadm, gates: o.Gates, agnhost: o.Agnhost,
		addons: o.Addons}
	c.Control = &Host{Name: "control", Addr: net.host(controlHost), dir: o.Dir}
	for i, no := range o.Nodes {
		c.Nodes = append(c.Nodes, c.newNode(no, net.host(11+i)))
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	for _, step := range []func() error{
		c.save, c.issueAll, c.Control.boot, c.wireControl, c.save, c.startAPI, c.save,
		func() error { return c.startRegistry(ctx) }, func() error { return c.connect(ctx) }, c.startControllers, c.save,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	for _, n := range c.Nodes {
		if err := c.startNode(ctx, n); err != nil {
			return err
		}
	}
	for _, n := range c.Nodes {
		if err := c.admit(ctx, n); err != nil {
			return err
		}
	}
	if c.kubeadm {
		return errors.Join(c.admitKubeadm(), c.save())
	}
	return errors.Join(c.AddDNS(ctx, c.Nodes[0].Name), c.save())
}

// save writes the state file.
func (c *Cluster) save() error {
	data, err := json.MarshalIndent(c, "", "\t")
	if err != nil {
		return err
	}
	tmp := c.path(stateFile + ".new")
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, c.path(stateFile))
}

// Open returns a cluster that another process has started. The error is fs.ErrNotExist if there is none.
func Open(dir string) (*Cluster, error) {
	data, err := os.ReadFile(filepath.Join(dir, stateFile))
	if err != nil {
		return nil, err
	}
	c := &Cluster{}
	if err := json.Unmarshal(data, c); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, stateFile), err)
	}
	c.Control.dir = dir
	for _, n := range c.Nodes {
		n.c, n.Host.dir = c, dir
	}
	return c, c.newClient()
}

// Kubeconfig returns the path of the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return c.path("pki", "admin.kubeconfig") }

// Node returns the node of that name, which must exist.
func (c *Cluster) Node(name string) *Node {
	for _, n := range c.Nodes {
		if n.Name == name {
			return n
		}
	}
	panic("no node " + name)
}

// Kubectl returns the path of kubectl.
func (c *Cluster) Kubectl() string { return c.program("kubectl") }

func (c *Cluster) path(elem ...string) string {
	return filepath.Join(append([]string{c.Dir}, elem...)...)
}

// contrib returns the path of a file of the repository's contrib directory.
func (c *Cluster) contrib(elem ...string) string {
	return filepath.Join(append([]string{c.Bin, "..", "contrib"}, elem...)...)
}

// program returns the path of one of Kubernetes' programs.
func (c *Cluster) program(name string) string { return filepath.Join(c.Bin, "kube", name) }

// Close removes the pods through podd, stops all processes and removes the directory. What podd left is an error that
// names it.
func (c *Cluster) Close() error {
	var errs []error
	for _, n := range c.Nodes {
		errs = append(errs, n.Empty())
	}
	return errors.Join(append(errs, c.stop(), os.RemoveAll(c.Dir))...)
}

// stopLimit bounds the end of a process. The API server waits up to 60 seconds (--request-timeout) for connections of a
// machine that was switched off.
const stopLimit = 90 * time.Second

// stop stops all processes and leaves the directory.
func (c *Cluster) stop() error {
	var errs []error
	for _, n := range c.Nodes {
		errs = append(errs, n.StopKubelet(), n.StopPodd(), n.Host.off([]string{n.Cgroup()}), removeCgroup(n.Cgroup()))
	}
	for i := len(c.Processes) - 1; i >= 0; i-- {
		errs = append(errs, c.Processes[i].end(syscall.SIGTERM, stopLimit))
	}
	if c.Control.Holder.Pid != 0 {
		errs = append(errs, c.Control.off(nil))
	}
	// The kernel would remove the link some time after the other end's namespace.
	if link, err := netlink.LinkByName(c.Net.Link); err == nil {
		if err := netlink.LinkDel(link); err != nil && !errors.Is(err, syscall.ENODEV) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
