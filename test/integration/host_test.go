package integration

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/test/leak"
)

func itoa(n int) string { return fmt.Sprint(n) }

// killContainer kills every process of the container and its monitor, and removes its cgroups, as a reboot does.
func killContainer(k *kubelet, id string) error {
	s, err := leak.Take(leak.Options{Match: []string{id}})
	if err != nil {
		return err
	}
	killed := 0
	for key := range s["process"] {
		var pid int
		if _, err := fmt.Sscanf(key, "%d@", &pid); err != nil {
			return err
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) { // a monitor ends by itself
			return err
		}
		killed++
	}
	if killed < 2 {
		return fmt.Errorf("processes of container %s = %v, want at least 2", id, s["process"])
	}
	k.eventually("the container's processes are gone", func() bool {
		s, err := leak.Take(leak.Options{Match: []string{id}})
		return err == nil && len(s["process"]) == 0
	})
	return removeCgroups(k, id)
}

// removeCgroups removes the container's cgroups.
func removeCgroups(k *kubelet, id string) error {
	list, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return err
	}
	for _, h := range list {
		found, err := filepath.Glob(filepath.Join(h.Mountpoint, k.CgroupParent, "*"+id+"*"))
		if err != nil {
			return err
		}
		for _, dir := range found {
			k.eventually("the cgroup is empty", func() bool {
				err = os.Remove(dir) // EBUSY for a moment after the last process has gone
				return !errors.Is(err, unix.EBUSY)
			})
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// unmountBelow unmounts everything below dir, innermost first.
func unmountBelow(k *kubelet, dir string) {
	k.Helper()
	list, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	k.ok("list mounts", err)
	slices.Reverse(list)
	for _, m := range list {
		k.ok("unmount "+m.Mountpoint, unix.Unmount(m.Mountpoint, unix.MNT_DETACH))
	}
}

// dropRules removes the packet filter rules and chains of the pod.
func dropRules(k *kubelet, pod string) error {
	s, err := leak.Take(leak.Options{Match: append(leak.Chains(k.Bridge, pod), pod)})
	if err != nil {
		return err
	}
	var rules, chains []string
	for key := range s["rule"] {
		program, rest, _ := strings.Cut(key, " ")
		table, rule, _ := strings.Cut(rest, " ")
		command := program + " -w -t " + table
		if chain, ok := strings.CutPrefix(rule, ":"); ok {
			chains = append(chains, command+" -F "+strings.Fields(chain)[0], command+" -X "+strings.Fields(chain)[0])
			continue
		}
		// iptables-save quotes as a shell does
		rules = append(rules, command+" -D "+strings.ReplaceAll(strings.TrimPrefix(rule, "-A "), "!", `\!`))
	}
	for _, command := range append(rules, chains...) {
		if err := shell(command); err != nil {
			return err
		}
	}
	return nil
}

func shell(command string) error {
	if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", command, err, out)
	}
	return nil
}
