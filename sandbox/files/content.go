package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/podd-project/podd/sandbox/convert"
)

// content is the first content of a file.
type content struct{ name, text string }

func (r Request) contents() ([]content, error) {
	var contents []content
	for _, f := range []struct {
		name string
		text func() (string, error)
	}{
		{resolvConf, r.resolvConf}, {hostname, r.hostnameLine}, {hosts, r.hosts},
	} {
		text, err := f.text()
		if err != nil {
			return nil, fmt.Errorf("make %s: %w", f.name, err)
		}
		contents = append(contents, content{f.name, text})
	}
	return contents, nil
}

// resolvConf returns the pod's resolver configuration, the node's when the kubelet sent none.
func (r Request) resolvConf() (string, error) {
	dns := r.Config.GetDnsConfig()
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

func (r Request) hostnameLine() (string, error) {
	if !convert.HostNetwork(r.Config) {
		return r.Hostname + "\n", nil
	}
	name, err := os.Hostname() // a pod on the host network has the node's UTS namespace
	return name + "\n", err
}

// hosts returns /etc/hosts for containers whose kubelet mounts none.
func (r Request) hosts() (string, error) {
	if convert.HostNetwork(r.Config) {
		return readHostFile("/etc/hosts")
	}
	var b strings.Builder
	b.WriteString("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n")
	for _, ip := range r.IPs {
		fmt.Fprintf(&b, "%s\t%s\n", ip, r.Hostname)
	}
	return b.String(), nil
}

// readHostFile reads a file of the node; a missing one is empty.
func readHostFile(path string) (string, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(text), err
}
