package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/leak"
)

// LogTail returns the last lines of the daemon's log.
func (d *Daemon) LogTail(lines int) string {
	data, err := os.ReadFile(d.LogFile())
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// LogProblems returns the last errors and warnings of the daemon's log.
func (d *Daemon) LogProblems(lines int) string {
	data, err := os.ReadFile(d.LogFile())
	if err != nil {
		return err.Error()
	}
	all := slices.DeleteFunc(strings.Split(string(data), "\n"), func(l string) bool {
		return !strings.Contains(l, "level=error") && !strings.Contains(l, "level=warning")
	})
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Alarms returns the data races and panics in the log, which fail every test.
func (d *Daemon) Alarms() []string {
	data, err := os.ReadFile(d.LogFile())
	if err != nil {
		return []string{err.Error()}
	}
	var found []string
	lines := strings.Split(string(data), "\n")
	for i, l := range lines {
		if strings.Contains(l, "WARNING: DATA RACE") || strings.HasPrefix(l, "panic:") ||
			strings.HasPrefix(l, "fatal error:") ||
			strings.Contains(l, "panic=") {
			found = append(found, strings.Join(lines[i:min(len(lines), i+40)], "\n"))
		}
	}
	return found
}

// Leak returns the options that select what this daemon may leave on the machine.
func (d *Daemon) Leak() leak.Options {
	match := append([]string{d.Dir, d.Bridge, filepath.Base(d.CgroupParent)}, d.pods()...)
	running := 0
	if d.Running() {
		running = d.Pid()
	}
	return leak.Options{Match: match, Wait: 10 * time.Second, Daemon: running,
		Files: []string{
			d.Path("root", "pods", "*"), d.Path("root", "network", "*.json"), d.Path("root", "network", "libcni", "*", "*"),
			d.Path("root", "quarantine", "*"),
			d.Path("root", "storage", "overlay-containers", "*"), d.Path("root", "storage", "rootfs", "*"),
			d.Path("run", "containers", "*"), d.Path("run", "pods", "*"), d.Path("run", "netns", "*"),
			d.Path("run", "runtimes", "*", strings.Repeat("[0-9a-f]", 64)+"*"), d.Path("run", "runtimes", "*", "state", "*",
				"*"),
			d.Path("ips", "*", "[0-9a-f]*[.:]*"),
		}}
}

// podID finds the ids of pods in podd's log.
var podID = regexp.MustCompile(`\bpod=([0-9a-f]{64})\b`)

// pods returns what the pods in the log may leave outside of the directory: packet filter chains, and a network
// namespace if network.netns_dir is set.
func (d *Daemon) pods() []string {
	data, err := os.ReadFile(d.LogFile())
	if err != nil {
		return nil // the daemon was never started
	}
	seen := map[string]bool{}
	var names []string
	for _, m := range podID.FindAllSubmatch(data, -1) {
		if pod := string(m[1]); !seen[pod] {
			seen[pod] = true
			names = append(append(names, "/netns/podd-"+pod), leak.Chains(d.Bridge, pod)...)
		}
	}
	return names
}

// RemovePods stops and removes all pods except those in keep.
func (d *Daemon) RemovePods(ctx context.Context, keep ...string) error {
	list, err := d.Runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range list.Items {
		if slices.Contains(keep, p.Id) {
			continue
		}
		_, err := d.Runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: p.Id})
		errs = append(errs, err)
		_, err = d.Runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.Id})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Keep stops the daemon, if it runs, and leaves its directory and pods for inspection.
func (d *Daemon) Keep() error {
	var err error
	if d.Running() {
		err = d.Stop()
	}
	return errors.Join(err, d.conn.Close())
}

// Close removes the pods, stops the daemon and removes its directory. Mounts, processes and cgroups that podd should
// have removed itself are errors; Close removes them, so that a failing test does not affect the next.
func (d *Daemon) Close() error {
	var errs []error
	if d.Running() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		errs = append(errs, d.RemovePods(ctx))
		cancel()
		errs = append(errs, d.Stop())
	}
	errs = append(errs, d.conn.Close(), d.removeBridge(), d.killProcesses(), d.unmount(), d.removeCgroups())
	return errors.Join(append(errs, os.RemoveAll(d.Dir))...)
}

// killProcesses kills the daemon's remaining processes: conmon, whose command line has our directory, and containers,
// which are in our cgroup.
func (d *Daemon) killProcesses() error {
	s, err := leak.Take(leak.Options{Match: []string{d.Dir + "/", d.CgroupParent + "/"}})
	if err != nil {
		return err
	}
	var errs []error
	for key, what := range s["process"] {
		var pid int
		if _, err := fmt.Sscanf(key, "%d@", &pid); err != nil || pid == os.Getpid() {
			continue
		}
		errs = append(errs, fmt.Errorf("process still running: %s, want none", what), unix.Kill(pid, unix.SIGKILL))
	}
	return errors.Join(errs...)
}

// unmount unmounts what is still mounted below the directory, innermost first. Any mount but that of layOut is an
// error.
func (d *Daemon) unmount() error {
	list, err := mountinfo.GetMounts(mountinfo.PrefixFilter(d.Dir))
	if err != nil {
		return err
	}
	slices.Reverse(list)
	var errs []error
	for _, m := range list {
		if !d.opts.RunOnTmpfs || m.Mountpoint != d.Path("run") {
			errs = append(errs, fmt.Errorf("still mounted: %s (%s), want no mount", m.Mountpoint, m.FSType))
		}
		errs = append(errs, unix.Unmount(m.Mountpoint, unix.MNT_DETACH))
	}
	return errors.Join(errs...)
}

// removeCgroups removes the parent cgroup of the tests' pods, which on a node the kubelet removes. cgroups still in it
// are errors and are removed too.
func (d *Daemon) removeCgroups() error {
	list, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return err
	}
	var errs []error
	for _, h := range list {
		parent := filepath.Join(h.Mountpoint, d.CgroupParent)
		left, err := filepath.Glob(filepath.Join(parent, "*-"+strings.Repeat("[0-9a-f]", 64)+"*"))
		errs = append(errs, err)
		for _, dir := range left {
			errs = append(errs, fmt.Errorf("cgroup still there: %s, want none", dir), os.Remove(dir))
		}
		if err := os.Remove(parent); !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
