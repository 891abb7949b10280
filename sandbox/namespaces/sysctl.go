package namespaces

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/thread"
)

// maxValue bounds a sysctl's value, in bytes: the kernel reads one page at most.
const maxValue = 4095

// ipcSysctl reports whether the IPC namespace has a copy of kernel.<name> (ipc/ipc_sysctl.c). With net.*, fs.mqueue.*,
// kernel.hostname and kernel.domainname these are all namespaced keys; the others belong to the node.
func ipcSysctl(name string) bool {
	switch name {
	case "shmmax", "shmall", "shmmni", "shm_rmid_forced", "shm_next_id",
		"msgmax", "msgmnb", "msgmni", "msg_next_id", "sem", "sem_next_id":
		return true
	}
	return false
}

// sysctl is a checked key.
type sysctl struct {
	key   string   // as requested
	parts []string // the path below /proc/sys
	value string
}

// CheckSysctls checks that every sysctl of r is namespaced and that r creates its namespace. Errors are
// errdefs.ErrInvalidArgument and name the sysctl.
func CheckSysctls(r Request) error {
	_, err := r.sysctls()
	return err
}

// sysctls returns the checked sysctls of r in the order of their keys.
func (r Request) sysctls() ([]sysctl, error) {
	out := make([]sysctl, 0, len(r.Sysctls))
	for _, key := range slices.Sorted(maps.Keys(r.Sysctls)) {
		s := sysctl{key: key, value: r.Sysctls[key]}
		var err error
		if s.parts, err = splitKey(key); err != nil {
			return nil, err
		}
		if err := r.checkNamespaced(s); err != nil {
			return nil, err
		}
		if err := checkValue(s); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// splitKey returns the path components of a key. The first separator decides: in net.ipv4.conf.eth0/1.forwarding and in
// net/ipv4/conf/eth0.1/forwarding the interface is eth0.1 (sysctl.d(5), as in runc).
func splitKey(key string) ([]string, error) {
	first := strings.IndexAny(key, "./")
	if first <= 0 {
		return nil, invalid("sysctl %q is not a key like net.ipv4.ip_forward", key)
	}
	path := key
	if key[first] == '.' {
		path = swapSeparators(key)
	}
	parts := strings.Split(path, "/")
	for _, p := range parts {
		if p == "" || p == "." || p == ".." || len(p) > unix.NAME_MAX ||
			strings.ContainsFunc(p, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
			return nil, invalid("sysctl %q has the component %q", key, p)
		}
	}
	return parts, nil
}

func swapSeparators(s string) string {
	return strings.Map(func(c rune) rune {
		switch c {
		case '.':
			return '/'
		case '/':
			return '.'
		}
		return c
	}, s)
}

// checkNamespaced checks that s is namespaced, in a namespace that r creates.
func (r Request) checkNamespaced(s sysctl) error {
	name := strings.Join(s.parts, "/")
	domain, ipcName := "", strings.TrimPrefix(name, "kernel/")
	var pin string
	switch {
	case s.parts[0] == "net" && len(s.parts) > 1:
		domain, pin = "network", r.Net
	case name == "kernel/"+ipcName && ipcSysctl(ipcName), strings.HasPrefix(name, "fs/mqueue/") && len(s.parts) == 3:
		domain, pin = "IPC", r.IPC
	case name == "kernel/hostname", name == "kernel/domainname":
		domain, pin = "UTS", r.UTS
	default:
		return invalid("sysctl %q is not namespaced: it belongs to the node", s.key)
	}
	if pin == "" {
		return invalid("sysctl %q: the pod shares the node's %s namespace, so it belongs to the node", s.key, domain)
	}
	return nil
}

func checkValue(s sysctl) error {
	if len(s.value) > maxValue {
		return invalid("sysctl %q has a value of %d bytes, more than %d", s.key, len(s.value), maxValue)
	}
	if strings.ContainsFunc(s.value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
		return invalid("sysctl %q has a value with control characters", s.key)
	}
	return nil
}

// ofInterface reports whether s belongs to one network interface, which may not exist yet, as
// net.ipv4.conf.eth0.forwarding does.
func (s sysctl) ofInterface() bool {
	if len(s.parts) < 5 || s.parts[0] != "net" || s.parts[2] != "conf" && s.parts[2] != "neigh" {
		return false
	}
	switch s.parts[3] {
	case "all", "default", "lo":
		return false
	}
	return true
}

func (s sysctl) ofIPC() bool {
	return s.parts[0] == "fs" || s.parts[0] == "kernel" && ipcSysctl(s.parts[1])
}

// writeSysctls writes the sysctls of r. It runs on a thread that is in the namespaces of r.
func (p *Pinner) writeSysctls(ctx context.Context, r Request) error {
	all, err := r.sysctls()
	if err != nil {
		return err
	}
	for _, s := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		if s, err = s.mapPingGroups(r.GIDs); err != nil {
			return err
		}
		write := s.write
		if s.ofIPC() && r.User != "" {
			// Since Linux 5.19 only the root of the owning user namespace may write these, capabilities do not help.
			write = func() error { return p.asOwner(r.UIDs, s.write) }
		}
		if err := write(); err != nil && !(s.ofInterface() && errors.Is(err, unix.ENOENT)) {
			return fmt.Errorf("set sysctl %s: %w", s.key, sysctlError(err))
		}
	}
	return nil
}

// sysctlError adds the kind to an error of the kernel: an unknown key or a refused value is the caller's mistake.
func sysctlError(err error) error {
	switch {
	case errors.Is(err, unix.ENOENT):
		return invalid("this kernel has no such sysctl")
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ERANGE):
		return fmt.Errorf("%w: the kernel refuses the value: %w", errdefs.ErrInvalidArgument, err)
	}
	return err
}

// write writes s in the namespaces of the calling thread.
func (s sysctl) write() error {
	root, err := unix.Open("/proc/sys", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	fd, err := unix.Openat2(root, strings.Join(s.parts, "/"), &unix.OpenHow{
		Flags:   unix.O_WRONLY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// In a single write: the kernel takes the value from the first one.
	_, err = unix.Write(fd, []byte(s.value+"\n"))
	return err
}

// Sysctl writes those of sysctls that name a network interface, in the pinned network namespace netns. Call it when CNI
// has created the interfaces, with the same map as Pin, which has written all others. If an interface still does not
// exist the error is errdefs.ErrInvalidArgument.
func (p *Pinner) Sysctl(ctx context.Context, netns string, sysctls map[string]string) error {
	late := Request{Net: netns, Sysctls: map[string]string{}}
	for key, value := range sysctls {
		if parts, err := splitKey(key); err == nil && (sysctl{parts: parts}).ofInterface() {
			late.Sysctls[key] = value
		}
	}
	if len(late.Sysctls) == 0 {
		return nil
	}
	if err := late.Validate(); err != nil {
		return err
	}
	all, err := late.sysctls()
	if err != nil {
		return err
	}
	return thread.Run(func() error {
		if err := enter(late.kinds()); err != nil {
			return err
		}
		for _, s := range all {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := s.write(); err != nil {
				return fmt.Errorf("set sysctl %s: %w", s.key, sysctlError(err))
			}
		}
		return nil
	})
}
