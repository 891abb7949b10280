package sandbox

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The files that a pod's containers share, below <run>/pods/<pod>.
const (
	resolvConfFile = "resolv.conf"
	hostnameFile   = "hostname"
	hostsFile      = "hosts"
	shmDir         = "shm"
)

// writePodFiles makes resolv.conf, hostname, hosts and the pod's /dev/shm.
func (e *Engine) writePodFiles(ctx context.Context, p *Pod, ips []netip.Addr) error {
	if err := os.MkdirAll(e.podRunDir(p.ID), 0o700); err != nil {
		return err
	}
	uids, gids := userMappings(p.Config)
	for name, content := range map[string]func() (string, error){
		resolvConfFile: func() (string, error) { return resolvConf(p.Config.GetDnsConfig()) },
		hostnameFile:   func() (string, error) { return hostnameLine(p) },
		hostsFile:      func() (string, error) { return hosts(p, ips) },
	} {
		text, err := content()
		if err != nil {
			return fmt.Errorf("make %s: %w", name, err)
		}
		// Containers of any user read these; the directory above keeps others on the node out.
		if err := os.WriteFile(e.podFile(p.ID, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		if uids == nil {
			continue
		}
		// Nobody's otherwise, in a user namespace; the pod's root owns the rest of /etc.
		if err := os.Chown(e.podFile(p.ID, name), int(hostID(uids)), int(hostID(gids))); err != nil {
			return fmt.Errorf("own %s: %w", name, err)
		}
	}
	if namespaceOptions(p.Config).GetIpc() == cri.NamespaceMode_NODE {
		return nil // containers get the node's /dev/shm
	}
	return e.shm.Mount(ctx, e.podFile(p.ID, shmDir), hostID(uids), hostID(gids), p.Labels.Mount)
}

// resolvConf is the pod's resolver configuration, the node's when the kubelet sent none.
func resolvConf(dns *cri.DNSConfig) (string, error) {
	if dns == nil {
		text, err := os.ReadFile("/etc/resolv.conf")
		if os.IsNotExist(err) {
			return "", nil
		}
		return string(text), err
	}
	var b strings.Builder
	if s := dns.GetSearches(); len(s) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(s, " "))
	}
	for _, s := range dns.GetServers() {
		fmt.Fprintf(&b, "nameserver %s\n", s)
	}
	if o := dns.GetOptions(); len(o) > 0 {
		fmt.Fprintf(&b, "options %s\n", strings.Join(o, " "))
	}
	return b.String(), nil
}

func hostnameLine(p *Pod) (string, error) {
	if !hostNetwork(p.Config) {
		return podHostname(p) + "\n", nil
	}
	name, err := os.Hostname() // a pod on the host network has the node's UTS namespace
	return name + "\n", err
}

// hosts is /etc/hosts for containers whose kubelet mounts none there.
func hosts(p *Pod, ips []netip.Addr) (string, error) {
	if hostNetwork(p.Config) {
		text, err := os.ReadFile("/etc/hosts")
		if os.IsNotExist(err) {
			return "", nil
		}
		return string(text), err
	}
	var b strings.Builder
	b.WriteString("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n")
	for _, ip := range ips {
		fmt.Fprintf(&b, "%s\t%s\n", ip, podHostname(p))
	}
	return b.String(), nil
}
