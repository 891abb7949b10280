package cluster

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
)

// Machine is a virtual machine on the cluster's bridge, with a kernel, a systemd and cgroups of its own. It runs
// /payload/run.sh of its payload disk, which executes the commands of Run.
type Machine struct {
	Name, Addr string

	c        *Cluster
	commands net.Conn
	answers  *bufio.Reader
}

// NewMachine returns a machine that is not running yet, the n-th of the cluster.
func (c *Cluster) NewMachine(name string, n int) *Machine {
	return &Machine{Name: name, Addr: c.Net.host(10 + n), c: c}
}

// Gateway is the address of the control plane, by which the machine reaches everything else.
func (m *Machine) Gateway() string { return m.c.Control.Addr }

// Images is the directory with the configuration of the image registry: registries.conf and policy.json.
func (m *Machine) Images() string { return m.c.path("images") }

// Start starts QEMU by the script qemu.sh, with the machine in the directory system and the payload disk, and returns
// when the machine has booted. The console is written to log/<name>-console.log.
func (m *Machine) Start(ctx context.Context, script, system, payload string) error {
	if err := m.c.Control.do(m.plugIn); err != nil {
		return err
	}
	socket := m.c.path(m.Name + ".sock")
	p, err := m.c.Control.start(m.Name+"-qemu", script, system, payload,
		"-netdev", "tap,id=n0,ifname="+m.Name+",script=no,downscript=no", "-device", "virtio-net-pci,netdev=n0,romfile=",
		"-serial", "file:"+m.c.path("log", m.Name+"-console.log"),
		"-chardev", "socket,id=c0,path="+socket+",server=on,wait=off",
		"-device", "virtio-serial-pci", "-device", "virtserialport,chardev=c0,name=commands")
	if err != nil {
		return err
	}
	m.c.Processes = append(m.c.Processes, p)
	if err := errors.Join(m.c.save(), m.c.wait(ctx, m.Name+"'s QEMU", func(context.Context) (err error) {
		m.commands, err = net.Dial("unix", socket)
		return err
	})); err != nil {
		return err
	}
	m.answers = bufio.NewReader(m.commands)
	if hello, err := m.answer(5 * time.Minute); hello != "ready" {
		return fmt.Errorf("boot %s: %q, %w, see %s", m.Name, hello, err, m.c.path("log", m.Name+"-console.log"))
	}
	return nil
}

// plugIn makes the machine's network device, and connects it to the bridge.
func (m *Machine) plugIn() error {
	tap := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: m.Name}, Mode: netlink.TUNTAP_MODE_TAP}
	if err := netlink.LinkAdd(tap); err != nil {
		return fmt.Errorf("connect %s: %w", m.Name, err)
	}
	h, err := netlink.NewHandle()
	if err != nil {
		return err
	}
	defer h.Close()
	return plug(h, m.Name)
}

// answer returns the next line that the machine sends.
func (m *Machine) answer(limit time.Duration) (string, error) {
	if err := m.commands.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return "", err
	}
	line, err := m.answers.ReadString('\n')
	return strings.TrimSpace(line), err
}

// Run runs a command of the shell in the directory /payload of the machine, and returns its output. The error has the
// exit status. After a command that takes longer than limit, the machine can be used no more.
func (m *Machine) Run(command string, limit time.Duration) (string, error) {
	if m.answers == nil {
		return "", fmt.Errorf("%s has not booted", m.Name)
	}
	if _, err := fmt.Fprintln(m.commands, base64.StdEncoding.EncodeToString([]byte(command))); err != nil {
		return "", err
	}
	line, err := m.answer(limit)
	if err != nil {
		return "", fmt.Errorf("%s: no answer to %q: %w", m.Name, command, err)
	}
	status, encoded, _ := strings.Cut(line, " ")
	out, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return "", fmt.Errorf("%s: answer %q: %w", m.Name, line, err)
	}
	if status != "0" {
		return string(out), fmt.Errorf("%s: %s: exit status %s: %s", m.Name, command, status, out)
	}
	return string(out), nil
}

// Proxy starts kube-proxy in the machine, under systemd, with Kubernetes' defaults.
func (m *Machine) Proxy() error {
	const dir, program = "/var/lib/kube-proxy", "/usr/local/bin/kube-proxy"
	config, err := json.Marshal(m.c.proxyConfig(m.Name, dir+"/kubeconfig"))
	if err != nil {
		return err
	}
	access, err := os.ReadFile(m.c.path("pki", "proxy.kubeconfig"))
	if err != nil {
		return err
	}
	return errors.Join(m.Write(dir+"/config.json", config), m.Write(dir+"/kubeconfig", access),
		m.do("ln -sf /payload/bin/kube "+program+" && systemd-run --quiet --unit=kube-proxy "+program+
			" --config="+dir+"/config.json"))
}

func (m *Machine) do(command string) error {
	_, err := m.Run(command, time.Minute)
	return err
}

// Write writes a file of the machine, and makes its directory.
func (m *Machine) Write(path string, data []byte) error {
	return m.do(fmt.Sprintf("mkdir -p $(dirname %[1]s) && base64 -d >%[1]s <<<%[2]s", path,
		base64.StdEncoding.EncodeToString(data)))
}

// Route adds the routes to the machine's pods.
func (m *Machine) Route(podCIDR string) error {
	return m.c.route(&Node{Host: Host{Name: m.Name, Addr: m.Addr}, PodCIDR: podCIDR, c: m.c})
}
