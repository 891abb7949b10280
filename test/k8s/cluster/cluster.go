// Package cluster runs a whole Kubernetes on one machine, with nodes on podd: etcd, the API server, the controllers and
// the scheduler on one host, and a podd and a kubelet on each of some others. A host is a network namespace and a mount
// namespace; the hosts are joined by a bridge. Nothing of it is seen on the machine but one network link, the
// processes, a cgroup for each node and one directory; Close takes all of that away, also in another process than the
// one that called Start.
//
// It never touches a podd or a kubelet that it has not started: a kubelet kills every pod of its runtime that it does
// not know, so a node's podd is only its kubelet's.
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
	// Dir is the cluster's directory, which must not exist or be empty; short, for the sake of sockets.
	Dir string
	// Bin is where the built programs are: podd, testimages, crictl, runc, cni/ and kube/.
	Bin string
	// Nodes are its nodes, at most 99.
	Nodes []NodeOptions
}

// Cluster is one that was started.
type Cluster struct {
	Dir     string  `json:"dir"`
	Bin     string  `json:"bin"`
	Net     network `json:"net"`
	Control *Host   `json:"control"`
	Nodes   []*Node `json:"nodes"`
	// Processes are those of the control plane.
	Processes []Process `json:"processes"`
	// AuthRegistry is the host:port of the registry that wants credentials; everything else is served as the usual
	// registries.
	AuthRegistry string `json:"authRegistry"`

	// agnhost is given to the registry.
	agnhost string

	Client kubernetes.Interface `json:"-"`
	REST   *rest.Config         `json:"-"`
}

// stateFile is what Open reads, in the cluster's directory.
const stateFile = "cluster.json"

// Start makes a cluster and returns when all nodes are ready. After an error nothing of it is left, except its logs if
// they say more.
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
		return nil, fmt.Errorf("%s is not empty: is a cluster up already? %w", o.Dir, fs.ErrExist)
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
	c := &Cluster{Dir: o.Dir, Bin: o.Bin, Net: net}
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
	return c.save()
}

// save writes what Open needs.
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

// Open finds a cluster that another process has started. An error that is fs.ErrNotExist means that there is none.
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

// Kubeconfig is the file for the cluster's administrator.
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

// Kubectl is the program.
func (c *Cluster) Kubectl() string { return c.program("kubectl") }

func (c *Cluster) path(elem ...string) string {
	return filepath.Join(append([]string{c.Dir}, elem...)...)
}

// contrib is a file that podd is delivered with: what users are given is what is tested.
func (c *Cluster) contrib(elem ...string) string {
	return filepath.Join(append([]string{c.Bin, "..", "contrib"}, elem...)...)
}

// program is the path of one of Kubernetes' programs.
func (c *Cluster) program(name string) string { return filepath.Join(c.Bin, "kube", name) }

// Close removes the pods through podd, ends everything and removes the directory. What was still there and should not
// have been is an error that names it.
func (c *Cluster) Close() error {
	var errs []error
	for _, n := range c.Nodes {
		errs = append(errs, n.Empty())
	}
	return errors.Join(append(errs, c.stop(), os.RemoveAll(c.Dir))...)
}

// stop ends everything and leaves the directory.
func (c *Cluster) stop() error {
	var errs []error
	for _, n := range c.Nodes {
		errs = append(errs, n.StopKubelet(), n.StopPodd(), n.Host.off([]string{n.Cgroup()}), removeCgroup(n.Cgroup()))
	}
	for i := len(c.Processes) - 1; i >= 0; i-- {
		errs = append(errs, c.Processes[i].end(syscall.SIGTERM, 20*time.Second))
	}
	if c.Control.Holder.Pid != 0 {
		errs = append(errs, c.Control.off(nil))
	}
	if link, err := netlink.LinkByName(c.Net.Link); err == nil { // it goes with the other end's namespace, some time later
		if err := netlink.LinkDel(link); err != nil && !errors.Is(err, syscall.ENODEV) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
