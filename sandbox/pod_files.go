package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci/spec"
	"github.com/podd-project/podd/sandbox/convert"
)

// The files that a pod's containers share, below <run>/pods/<pod>.
const (
	resolvConfFile = "resolv.conf"
	hostnameFile   = "hostname"
	hostsFile      = "hosts"
	shmDir         = "shm"
)

// writePodFiles writes resolv.conf, hostname and hosts, and mounts the pod's /dev/shm.
func (e *Engine) writePodFiles(ctx context.Context, p *Pod, ips []netip.Addr) error {
	if err := os.MkdirAll(e.paths.podRun(p.ID), 0o700); err != nil {
		return err
	}
	for _, f := range []struct {
		name    string
		content func() (string, error)
	}{
		{resolvConfFile, func() (string, error) { return resolvConf(p.Config.GetDnsConfig()) }},
		{hostnameFile, func() (string, error) { return hostnameLine(p) }},
		{hostsFile, func() (string, error) { return hosts(p, ips) }},
	} {
		text, err := f.content()
		if err != nil {
			return fmt.Errorf("make %s: %w", f.name, err)
		}
		if err := writePodFile(e.paths.podFile(p.ID, f.name), text, p); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
	}
	if convert.NamespaceOptions(p.Config).GetIpc() == cri.NamespaceMode_NODE {
		return nil // containers get the node's /dev/shm
	}
	uids, gids := convert.UserMappings(p.Config)
	return e.shm.Mount(ctx, e.paths.podFile(p.ID, shmDir), convert.HostID(uids), convert.HostID(gids), p.Labels.Mount)
}

// writePodFile writes one file, owned by the pod's root user. Containers of any user read it; the directory above keeps
// other users of the node out.
func writePodFile(path, text string, p *Pod) error {
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return err
	}
	uids, gids := convert.UserMappings(p.Config)
	if uids == nil {
		return nil
	}
	return os.Chown(path, int(convert.HostID(uids)), int(convert.HostID(gids)))
}

// podFiles returns the files that p's containers mount.
func (p paths) podFiles(pod *Pod) spec.PodFiles {
	files := spec.PodFiles{
		ResolvConf: p.podFile(pod.ID, resolvConfFile), Hostname: p.podFile(pod.ID, hostnameFile),
		Hosts: p.podFile(pod.ID, hostsFile), Shm: p.podFile(pod.ID, shmDir),
	}
	if convert.NamespaceOptions(pod.Config).GetIpc() == cri.NamespaceMode_NODE {
		files.Shm = "/dev/shm"
	}
	return files
}

// readHostFile reads a file of the node; a missing one is empty.
func readHostFile(path string) (string, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(text), err
}

// resolvConf returns the pod's resolver configuration, the node's when the kubelet sent none.
func resolvConf(dns *cri.DNSConfig) (string, error) {
	if dns == nil {
		return readHostFile("/etc/resolv.conf")
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
	if !convert.HostNetwork(p.Config) {
		return podHostname(p) + "\n", nil
	}
	name, err := os.Hostname() // a pod on the host network has the node's UTS namespace
	return name + "\n", err
}

// hosts returns /etc/hosts for containers whose kubelet mounts none.
func hosts(p *Pod, ips []netip.Addr) (string, error) {
	if convert.HostNetwork(p.Config) {
		return readHostFile("/etc/hosts")
	}
	var b strings.Builder
	b.WriteString("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n")
	for _, ip := range ips {
		fmt.Fprintf(&b, "%s\t%s\n", ip, podHostname(p))
	}
	return b.String(), nil
}

// podHostname returns the hostname in the pod's UTS namespace.
func podHostname(p *Pod) string {
	if h := p.Config.GetHostname(); h != "" {
		return h
	}
	return p.ID[:12]
}
