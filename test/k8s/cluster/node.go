package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeOptions are the settings of a node that differ from the defaults.
type NodeOptions struct {
	Name string
	// Kubelet has further keys of the KubeletConfiguration.
	Kubelet map[string]any
	// Podd is added to podd's configuration, in TOML.
	Podd string
}

// Node is a host with a podd and a kubelet.
type Node struct {
	Host
	Options NodeOptions `json:"options"`
	Podd    Process     `json:"podd"`
	Kubelet Process     `json:"kubelet"`
	// PodCIDR is the range that the controller manager has assigned to the node.
	PodCIDR string `json:"podCIDR"`
	// Boots is how often the host was booted.
	Boots int `json:"boots"`

	c *Cluster
}

func (c *Cluster) newNode(o NodeOptions, addr string) *Node {
	return &Node{Host: Host{Name: o.Name, Addr: addr, dir: c.Dir}, Options: o, c: c}
}

// Path returns a path below the node's directory.
func (n *Node) Path(elem ...string) string {
	return filepath.Join(append([]string{n.c.Dir, n.Name}, elem...)...)
}

// Socket returns the path of podd's socket.
func (n *Node) Socket() string { return n.Path("run", "podd.sock") }

// Cgroup returns the root of the kubelet's cgroups.
func (n *Node) Cgroup() string { return "/" + filepath.Base(n.c.Dir) + "-" + n.Name }

// startNode creates a node's directories and starts its programs.
func (c *Cluster) startNode(ctx context.Context, n *Node) error {
	if err := n.layOut(); err != nil {
		return fmt.Errorf("lay out %s: %w", n.Name, err)
	}
	if err := c.bootNode(n); err != nil {
		return err
	}
	if err := errors.Join(n.StartPodd(ctx), n.StartKubelet(), n.startProxy()); err != nil {
		return err
	}
	return c.save()
}

// bootNode creates the node's host and connects it.
func (c *Cluster) bootNode(n *Node) error {
	n.Boots++
	for _, step := range []func() error{
		func() error { return makeCgroup(n.Cgroup()) }, n.boot, n.installPlugins, func() error { return c.wireNode(n) },
		n.newBootID, c.save,
	} {
		if err := step(); err != nil {
			return fmt.Errorf("boot %s: %w", n.Name, err)
		}
	}
	return nil
}

// installPlugins has the CNI plugins in the directory where podd and add-ons look for them, and can add others.
func (n *Node) installPlugins() error {
	return n.do(func() error {
		const dir = "/opt/cni/bin"
		return errors.Join(os.MkdirAll(dir, 0o755), n.overlay(dir, filepath.Join(n.c.Bin, "cni")))
	})
}

// newBootID gives a host that is booted again another boot id, by which podd detects a reboot.
func (n *Node) newBootID() error {
	if n.Boots == 1 {
		return nil
	}
	const file = "/proc/sys/kernel/random/boot_id"
	own := n.Path("boot_id")
	if err := os.WriteFile(own, fmt.Appendf(nil, "%08x-0000-4000-8000-%012x\n", n.Boots, n.Holder.Pid),
		0o444); err != nil {
		return err
	}
	return n.do(func() error { return syscall.Mount(own, file, "", syscall.MS_BIND, "") })
}

func (n *Node) layOut() error {
	for _, sub := range []string{"root", "run", "net.d", "kubelet", "manifests"} {
		if err := os.MkdirAll(n.Path(sub), 0o755); err != nil {
			return err
		}
	}
	return errors.Join(
		// No DNS server listens there: the tests use no other machine. CoreDNS, which forwards to it, takes a loopback
		// address for its own.
		os.WriteFile(n.Path("resolv.conf"), []byte("nameserver "+n.c.Control.Addr+"\n"), 0o644),
		os.WriteFile(n.Path("podd.toml"), []byte(n.poddConfig()), 0o644),
		os.WriteFile(n.Path("crictl.yaml"), fmt.Appendf(nil, "runtime-endpoint: unix://%[1]s\nimage-endpoint: "+
			"unix://%[1]s\ntimeout: 120\n", n.Socket()), 0o644),
		n.Configure(n.Options.Kubelet))
}

// poddConfig returns podd's configuration: the defaults except for paths and the cgroup driver. The driver differs from
// the one in the kubelet's configuration, so that pods only start if the kubelet asks podd for it.
func (n *Node) poddConfig() string {
	return fmt.Sprintf(`root = %q
run = %q

[log]
level = "debug"

[runtime]
cgroup_driver = "cgroupfs"
search_path = [%q, "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
seccomp_profile_root = %q

%s[network]
netns_dir = "/var/run/netns"
conf_dir = %q
conf_template = %q

[image]
registries_conf = %q
policy = %q
%s`, n.Path("root"), n.Path("run"), n.c.Bin, n.Path("kubelet", "seccomp"), n.machines(), n.Path("net.d"),
		n.c.contrib("kubernetes", "podd-cni.template"), n.c.path("images", "registries.conf"),
		n.c.path("images", "policy.json"), n.Options.Podd)
}

// machines is the configuration of the handler vm, if its shim and image have been built.
func (n *Node) machines() string {
	images := filepath.Join(n.c.Bin, "vm")
	if _, err := os.Stat(filepath.Join(images, "uml")); err != nil {
		return ""
	}
	return fmt.Sprintf("[runtime.handlers.vm]\ntype = \"shim\"\npath = \"containerd-shim-podvm-v1\"\n"+
		"options = {driver = \"uml\", images = %q}\n\n", images)
}

// Configure writes the kubelet's configuration: what a test's node needs, with the keys of more, which take precedence.
// The kubelet reads it at its start.
func (n *Node) Configure(more map[string]any) error {
	pki := func(file string) string { return n.c.path("pki", file) }
	config := object{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"containerRuntimeEndpoint": "unix://" + n.Socket(),
		"cgroupDriver":             "systemd", // differs from podd's: see poddConfig
		"cgroupRoot":               n.Cgroup(),
		"failCgroupV1":             false, // by default the kubelet does not run on cgroup v1
		"failSwapOn":               false,
		"oomScoreAdj":              0, // lowering it needs CAP_SYS_RESOURCE
		"podLogsDir":               n.Path("pods"),
		"staticPodPath":            n.Path("manifests"),
		"fileCheckFrequency":       "1s",
		"address":                  n.Addr,
		"tlsCertFile":              pki(n.Name + ".crt"), "tlsPrivateKeyFile": pki(n.Name + ".key"),
		"authentication": object{"anonymous": object{"enabled": false}, "webhook": object{"enabled": true},
			"x509": object{"clientCAFile": pki("ca.crt")}},
		"authorization": object{"mode": "Webhook"},
		// Only a test's own settings may cause evictions and garbage collection, not the machine's disk.
		"evictionHard": object{"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
			"imagefs.available": "0%", "imagefs.inodesFree": "0%"},
		"imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
		"serializeImagePulls": false,
		"registryPullQPS":     0, "eventRecordQPS": 0,
		"containerLogMaxSize": "256Ki", "containerLogMaxFiles": 3, "containerLogMonitorInterval": "3s",
		"resolvConf": n.Path("resolv.conf"), "clusterDNS": []string{n.c.Net.dns()}, "clusterDomain": "cluster.local",
		"podPidsLimit": 500,
		"logging":      object{"verbosity": 2},
	}
	maps.Copy(config, more)
	return writeJSON(n.Path("kubelet.json"), config)
}

// StartPodd starts the node's podd and waits until it answers.
func (n *Node) StartPodd(ctx context.Context) (err error) {
	if n.Podd, err = n.start(n.Name+"-podd", filepath.Join(n.c.Bin, "podd"), "--config", n.Path("podd.toml")); err != nil {
		return err
	}
	return errors.Join(n.c.save(), n.c.wait(ctx, n.Name+"'s podd", func(context.Context) error {
		if !n.Podd.Alive() {
			return errors.New("it has exited")
		}
		_, err := n.Crictl("version")
		return err
	}))
}

// StopPodd stops podd; pods keep running.
func (n *Node) StopPodd() error { return n.Podd.end(syscall.SIGTERM, time.Minute) }

// KillPodd kills podd with SIGKILL.
func (n *Node) KillPodd() error { return n.Podd.end(syscall.SIGKILL, time.Minute) }

// StartKubelet starts the node's kubelet and does not wait for it.
func (n *Node) StartKubelet() (err error) {
	n.Kubelet, err = n.start(n.Name+"-kubelet", n.c.program("kubelet"), "--config="+n.Path("kubelet.json"),
		"--kubeconfig="+n.c.path("pki", n.Name+".kubeconfig"), "--hostname-override="+n.Name, "--node-ip="+n.Addr,
		"--root-dir="+n.Path("kubelet"), "--cert-dir="+n.Path("kubelet", "pki"))
	return errors.Join(err, n.c.save())
}

// StopKubelet stops the kubelet; pods keep running.
func (n *Node) StopKubelet() error { return n.Kubelet.end(syscall.SIGTERM, time.Minute) }

// Crictl runs crictl on the node.
func (n *Node) Crictl(args ...string) (string, error) {
	return n.Run(filepath.Join(n.c.Bin, "crictl"), append([]string{"--config", n.Path("crictl.yaml")}, args...)...)
}

// Reboot simulates a power cut and a start: all processes are killed, mounts, network and the files in /run are lost,
// the disks stay. Then podd and the kubelet start again.
func (n *Node) Reboot(ctx context.Context) error {
	if err := errors.Join(n.Host.off([]string{n.Cgroup()}), removeCgroup(n.Cgroup())); err != nil {
		return fmt.Errorf("cut %s's power: %w", n.Name, err)
	}
	if err := errors.Join(os.RemoveAll(n.Path("run")), os.Mkdir(n.Path("run"), 0o755), n.c.unplug(n)); err != nil {
		return err
	}
	if err := errors.Join(n.c.bootNode(n), n.c.routeAll()); err != nil {
		return err
	}
	return errors.Join(n.StartPodd(ctx), n.StartKubelet(), n.startProxy())
}

// admit waits until the node is ready, with a pod CIDR for which podd has configured a network.
func (c *Cluster) admit(ctx context.Context, n *Node) error {
	if err := c.wait(ctx, "node "+n.Name, func(ctx context.Context) error {
		node, err := c.Client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		n.PodCIDR = node.Spec.PodCIDR
		for _, cond := range node.Status.Conditions {
			if cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue {
				return nil
			}
			if cond.Type == corev1.NodeReady {
				err = errors.New(cond.Message)
			}
		}
		return errors.Join(errors.New("not ready"), err)
	}); err != nil {
		return err
	}
	return c.route(n)
}

// Empty stops the kubelet, which would start the pods again, and removes all pods through podd. What podd leaves is an
// error.
func (n *Node) Empty() error {
	errs := []error{n.StopKubelet()}
	if !n.Podd.Alive() {
		return errors.Join(errs...)
	}
	_, err := n.Crictl("rmp", "--all", "--force")
	errs = append(errs, err)
	if left := n.left(); len(left) > 0 {
		errs = append(errs, fmt.Errorf("files left by podd on %s: %s", n.Name, strings.Join(left, ", ")))
	}
	return errors.Join(errs...)
}

// left lists files that podd must not leave when all pods are removed.
func (n *Node) left() (left []string) {
	for _, pattern := range []string{"root/pods/*", "root/network/*.json", "root/quarantine/*",
		"root/storage/overlay-containers/" + strings.Repeat("?", 64),
		"run/containers/*", "run/pods/*", "run/etc/*"} {
		found, err := filepath.Glob(n.Path(pattern))
		if err != nil {
			return append(left, err.Error())
		}
		left = append(left, found...)
	}
	if err := n.do(func() error {
		found, err := filepath.Glob("/run/netns/podd-*")
		left = append(left, found...)
		return err
	}); err != nil {
		left = append(left, err.Error())
	}
	return left
}
