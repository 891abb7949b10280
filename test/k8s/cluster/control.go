package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// issueAll creates all certificates and kubeconfigs.
func (c *Cluster) issueAll() error {
	ca, err := newAuthority(c.path("pki"))
	if err != nil {
		return fmt.Errorf("create the certificates: %w", err)
	}
	if err := errors.Join(ca.serviceAccounts(), c.issueFrontProxy()); err != nil {
		return err
	}
	names := []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local"}
	ids := []identity{
		{file: "apiserver", user: "kube-apiserver", dns: names,
			ips: []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(c.Net.firstService()), net.ParseIP(c.Control.Addr)}},
		{file: "to-kubelet", user: "kube-apiserver-kubelet-client", group: "system:masters"},
		{file: "admin", user: "admin", group: "system:masters"},
		{file: "controllers", user: "system:kube-controller-manager"},
		{file: "scheduler", user: "system:kube-scheduler"},
		{file: "proxy", user: "system:kube-proxy"},
	}
	for _, n := range c.Nodes {
		ids = append(ids, identity{file: n.Name, user: "system:node:" + n.Name, group: "system:nodes",
			dns: []string{n.Name}, ips: []net.IP{net.ParseIP(n.Addr)}})
	}
	for _, id := range ids {
		if err := ca.issue(id); err != nil {
			return err
		}
		if err := ca.kubeconfig(id.file, "https://"+net.JoinHostPort(c.Control.Addr, "6443")); err != nil {
			return err
		}
	}
	return nil
}

// frontProxy is the name by which the API server introduces itself to the API servers of add-ons.
const frontProxy = "front-proxy-client"

// issueFrontProxy creates the certificate for that, of a separate CA: who has one may act as any user.
func (c *Cluster) issueFrontProxy() error {
	ca, err := newAuthority(c.path("pki", "front-proxy"))
	if err != nil {
		return fmt.Errorf("create the front proxy's certificates: %w", err)
	}
	return ca.issue(identity{file: "client", user: frontProxy})
}

// program is a program of the control plane, with its flags.
type program struct {
	name string
	args []string
}

// startAPI starts etcd and the API server, which waits for it.
func (c *Cluster) startAPI() error {
	pki := func(file string) string { return c.path("pki", file) }
	var kubelets []string
	if !c.kubeadm {
		kubelets = []string{"--kubelet-certificate-authority=" + pki("ca.crt")}
	}
	kubelets = append(kubelets, c.gateFlags()...)
	return c.startPrograms(
		program{"etcd", []string{"--data-dir=" + c.path("etcd"), "--unsafe-no-fsync", "--log-level=warn"}},
		program{"kube-apiserver", append(kubelets,
			"--etcd-servers=http://127.0.0.1:2379", "--bind-address="+c.Control.Addr, "--advertise-address="+c.Control.Addr,
			"--tls-cert-file="+pki("apiserver.crt"), "--tls-private-key-file="+pki("apiserver.key"),
			"--client-ca-file="+pki("ca.crt"),
			"--kubelet-client-certificate="+pki("to-kubelet.crt"), "--kubelet-client-key="+pki("to-kubelet.key"),
			"--kubelet-preferred-address-types=InternalIP", "--enable-bootstrap-token-auth=true",
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
			"--service-account-key-file="+pki("sa.pub"), "--service-account-signing-key-file="+pki("sa.key"),
			"--requestheader-client-ca-file="+pki("front-proxy/ca.crt"), "--requestheader-allowed-names="+frontProxy,
			"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
			"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--enable-aggregator-routing=true",
			"--proxy-client-cert-file="+pki("front-proxy/client.crt"), "--proxy-client-key-file="+pki("front-proxy/client.key"),
			"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
			"--service-cluster-ip-range="+c.Net.services())})
}

// startControllers starts the controller manager and the scheduler. They exit if the API server has not created their
// roles yet.
func (c *Cluster) startControllers() error {
	client := func(name string) []string {
		k := c.path("pki", name+".kubeconfig")
		return append([]string{"--kubeconfig=" + k, "--authentication-kubeconfig=" + k, "--authorization-kubeconfig=" + k,
			"--bind-address=127.0.0.1", "--leader-elect=false"}, c.gateFlags()...)
	}
	return c.startPrograms(
		program{"kube-controller-manager", append(client("controllers"), "--use-service-account-credentials=true",
			"--service-account-private-key-file="+c.path("pki", "sa.key"), "--root-ca-file="+c.path("pki", "ca.crt"),
			"--controllers=*,bootstrapsigner,tokencleaner",
			"--cluster-signing-cert-file="+c.path("pki", "ca.crt"),
			"--cluster-signing-key-file="+c.path("pki", "ca.key"), "--allocate-node-cidrs=true",
			"--cluster-cidr="+c.Net.pods(), "--node-cidr-mask-size=24")},
		program{"kube-scheduler", client("scheduler")})
}

// gateFlags returns the flag that enables the gates of the options.
func (c *Cluster) gateFlags() (flags []string) {
	for _, gate := range c.gates {
		flags = append(flags, "--feature-gates="+gate+"=true")
	}
	return flags
}

func (c *Cluster) startPrograms(list ...program) error {
	for _, p := range list {
		process, err := c.Control.start(p.name, c.program(p.name), p.args...)
		if err != nil {
			return err
		}
		c.Processes = append(c.Processes, process)
	}
	return nil
}

// startRegistry serves the test images to the nodes.
func (c *Cluster) startRegistry(ctx context.Context) error {
	args := []string{"serve", net.JoinHostPort(c.Control.Addr, "5000"), c.path("images")}
	if c.agnhost != "" {
		args = append(args, "agnhost="+c.agnhost)
	}
	args = append(args, "coredns="+filepath.Join(c.Bin, "kube"))
	for _, a := range c.addons {
		args = append(args, a+"="+filepath.Join(c.Bin, "addons"))
	}
	p, err := c.Control.start("registry", filepath.Join(c.Bin, "testimages"), args...)
	if err != nil {
		return err
	}
	c.Processes = append(c.Processes, p)
	return c.wait(ctx, "the image registry", func(context.Context) error {
		data, err := os.ReadFile(c.path("log", "registry.log"))
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(data)) {
			fmt.Sscanf(line, "credentials wanted on %s", &c.AuthRegistry)
		}
		if !strings.Contains(string(data), "serving on") || c.AuthRegistry == "" {
			return fmt.Errorf("it is not ready, its output is %q", data)
		}
		return nil
	})
}

// connect creates the client and waits until the API server is ready.
func (c *Cluster) connect(ctx context.Context) error {
	if err := c.newClient(); err != nil {
		return err
	}
	return c.wait(ctx, "the API server", func(ctx context.Context) error {
		_, err := c.Client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err
	})
}

func (c *Cluster) newClient() error {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return err
	}
	config.QPS = -1 // no limit in the client
	c.REST = config
	c.Client, err = kubernetes.NewForConfig(rest.CopyConfig(config))
	return err
}

// wait calls f until it returns nil.
func (c *Cluster) wait(ctx context.Context, what string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for {
		attempt, done := context.WithTimeout(ctx, 5*time.Second)
		err := f(attempt)
		done()
		if err == nil {
			return nil
		}
		for _, p := range c.Processes {
			if !p.Alive() {
				return fmt.Errorf("%s has exited, see %s", p.Name, c.path("log", p.Name+".log"))
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w (the logs are in %s)", what, err, c.path("log"))
		case <-time.After(50 * time.Millisecond):
		}
	}
}
