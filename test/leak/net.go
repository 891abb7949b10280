package leak

import (
	"bytes"
	"crypto/sha512"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/vishvananda/netlink"
)

// links lists the network interfaces of the host.
func links(Options) (map[string]string, error) {
	list, err := netlink.LinkList()
	for range 10 {
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
		list, err = netlink.LinkList() // the list changed while the kernel dumped it
	}
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, l := range list {
		master := ""
		if i := l.Attrs().MasterIndex; i != 0 {
			if m, err := netlink.LinkByIndex(i); err == nil {
				master = "of " + m.Attrs().Name
			}
		}
		found[l.Attrs().Name] = strings.TrimSpace(l.Type() + " " + master)
	}
	return found, nil
}

// standing matches the rules that the CNI plugins make once and never remove: their top-level chains and jumps to them.
var standing = regexp.MustCompile(`^(:|-A \S+ .*-j )?CNI-(HOSTPORT-\S+|FORWARD|ADMIN|ISOLATION\S*)\b` +
	`|^-A (CNI-HOSTPORT-SETMARK|CNI-HOSTPORT-MASQ|CNI-FORWARD .*CNI-ADMIN)`)

// Chains returns the names of the chains that the CNI plugins bridge and portmap make for a pod of the network. The
// names are hashes, so the owner of a chain without rules cannot be recognized: pass these names in Options.Match.
func Chains(network, pod string) []string {
	sum := fmt.Sprintf("%x", sha512.Sum512([]byte(network+pod)))
	var names []string
	for _, prefix := range []string{"CNI-", "CNI-DN-", "CNI-SN-"} {
		names = append(names, (prefix + sum)[:28]) // the longest name that iptables accepts
	}
	return names
}

// rules lists the chains and rules of iptables, except those that are not specific to a pod.
func rules(Options) (map[string]string, error) {
	found := map[string]string{}
	for _, save := range []string{"iptables-save", "ip6tables-save"} {
		path, err := exec.LookPath(save)
		if errors.Is(err, exec.ErrNotFound) {
			continue // then the plugins cannot have made rules
		}
		if err != nil {
			return nil, err
		}
		out, err := exec.Command(path).Output()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", save, err)
		}
		addRules(found, save, out)
	}
	return found, nil
}

// addRules adds the lines of iptables-save, without comments and counters.
func addRules(found map[string]string, save string, out []byte) {
	table := ""
	for line := range bytes.Lines(out) {
		rule := strings.TrimSpace(string(line))
		if name, ok := strings.CutPrefix(rule, "*"); ok {
			table = name
		}
		if i := strings.Index(rule, " ["); strings.HasPrefix(rule, ":") && i > 0 {
			rule = rule[:i]
		}
		chainOrRule := strings.HasPrefix(rule, ":") || strings.HasPrefix(rule, "-A")
		if chainOrRule && !standing.MatchString(rule) && !builtin(rule) {
			found[strings.TrimSuffix(save, "-save")+" "+table+" "+rule] = ""
		}
	}
}

// builtin reports whether the line is a built-in chain, which appears with the first rule of its table.
func builtin(rule string) bool {
	for _, chain := range []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"} {
		if strings.HasPrefix(rule, ":"+chain+" ") {
			return true
		}
	}
	return false
}

// cniState lists the addresses that host-local has allocated and libcni's cached results.
func cniState(Options) (map[string]string, error) {
	found := map[string]string{}
	for _, pattern := range []string{
		"/var/lib/cni/networks/*/*", "/run/cni/networks/*/*", "/var/lib/cni/results/*", "/var/lib/cni/cache/*/*",
	} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, p := range paths {
			if base := filepath.Base(p); base == "lock" || strings.HasPrefix(base, "last_reserved_ip") {
				continue
			}
			owner, err := os.ReadFile(p) // for an address: the container id
			if err != nil {
				continue // released meanwhile
			}
			found[p] = strings.Join(strings.Fields(string(owner[:min(len(owner), 200)])), " ")
		}
	}
	return found, nil
}

// sockets lists the listening unix sockets that have a path or an abstract name.
func sockets(Options) (map[string]string, error) {
	data, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for line := range strings.Lines(string(data)) {
		// Num RefCount Protocol Flags Type St Inode Path; __SO_ACCEPTCON marks the listening ones
		f := strings.Fields(line)
		if len(f) >= 8 && f[3] == "00010000" {
			found[strings.Join(f[7:], " ")] = ""
		}
	}
	return found, nil
}
