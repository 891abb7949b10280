package network

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/containerd/errdefs"
)

// idPattern is CNI's rule for container ids and network names. A match is also a plain file name.
var idPattern = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`)

// maxID bounds them, in bytes. It is not a part of the pattern, which every start of the program compiles.
const maxID = 200

// maxName bounds a pod's name, namespace and uid, in bytes: Kubernetes' limit for names.
const maxName = 253

// Validate checks everything in r that does not depend on the machine. Errors are errdefs.ErrInvalidArgument.
func (r Request) Validate() error {
	checks := []func() error{r.checkIdentity, r.checkPorts, r.checkDNS, r.checkPaths}
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errdefs.ErrInvalidArgument, fmt.Sprintf(format, args...))
}

func checkPodID(id string) error {
	if len(id) > maxID || !idPattern.MatchString(id) {
		return invalid("pod id %.80q is not letters, digits, dots, dashes and underscores", id)
	}
	return nil
}

// checkIdentity prevents names from adding pairs to CNI_ARGS, which is joined with ';' and '='.
func (r Request) checkIdentity() error {
	if err := checkPodID(r.PodID); err != nil {
		return err
	}
	for _, n := range []struct{ what, value string }{
		{"name", r.PodName}, {"namespace", r.PodNamespace}, {"uid", r.PodUID},
	} {
		if len(n.value) > maxName || strings.ContainsAny(n.value, ";=/") || strings.ContainsFunc(n.value, notGraphic) {
			return invalid("pod %s %.80q: too long, or with a space, control character, ';', '=' or '/'", n.what, n.value)
		}
	}
	return nil
}

// notGraphic reports whether c is not visible ASCII.
func notGraphic(c rune) bool { return c <= ' ' || c >= 0x7f }

func (r Request) checkPorts() error {
	for _, p := range r.Ports {
		if p.HostPort < 1 || p.HostPort > 65535 || p.ContainerPort < 1 || p.ContainerPort > 65535 {
			return invalid("port mapping %d to %d: ports are 1 to 65535", p.HostPort, p.ContainerPort)
		}
		switch p.Protocol {
		case "tcp", "udp", "sctp":
		default:
			return invalid("port mapping %d: protocol %.20q is not tcp, udp or sctp", p.HostPort, p.Protocol)
		}
		if p.HostIP == "" {
			continue
		}
		// A zone would get into a firewall rule.
		if ip, err := netip.ParseAddr(p.HostIP); err != nil || ip.Zone() != "" {
			return invalid("port mapping %d: host ip %.80q is not an IP address", p.HostPort, p.HostIP)
		}
	}
	return nil
}

func (r Request) checkDNS() error {
	for _, s := range r.DNS.Servers {
		if _, err := netip.ParseAddr(s); err != nil {
			return invalid("DNS server %.80q is not an IP address", s)
		}
	}
	for _, list := range [][]string{r.DNS.Searches, r.DNS.Options} {
		for _, s := range list {
			if len(s) > maxName || strings.ContainsFunc(s, notGraphic) {
				return invalid("DNS search or option %.80q: too long, or with a space or control character", s)
			}
		}
	}
	return nil
}

func (r Request) checkPaths() error {
	for _, p := range []struct {
		what, path string
		optional   bool
	}{{"network namespace", r.Netns, false}, {"CNI configuration directory", r.ConfDir, true}} {
		if !filepath.IsAbs(p.path) && !(p.optional && p.path == "") || strings.ContainsRune(p.path, 0) {
			return invalid("%s %.80q is not an absolute path", p.what, p.path)
		}
	}
	if strings.ContainsFunc(r.CgroupPath, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return invalid("cgroup path %.80q has a control character", r.CgroupPath)
	}
	return nil
}
