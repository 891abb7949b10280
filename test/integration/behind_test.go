package integration

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/test/daemon"
	"github.com/podd-project/podd/test/sample"
)

// damages are resources of a running pod that the test removes without the daemon.
var damages = []struct {
	name string
	do   func(l *life) error
}{
	{"monitor killed", func(l *life) error {
		return syscall.Kill(stateOf(l.k, l.k, l.containerID).Monitor.Pid, syscall.SIGKILL)
	}},
	{"monitor and container killed", func(l *life) error {
		s := stateOf(l.k, l.k, l.containerID)
		return errors.Join(syscall.Kill(s.Monitor.Pid, syscall.SIGKILL), syscall.Kill(s.Init.Pid, syscall.SIGKILL))
	}},
	{"runtime state removed", func(l *life) error {
		return removeExisting(l.k.Path("run", "runtimes", "runc", l.containerID), l.k.Path("run", "runtimes", "crun",
			l.containerID))
	}},
	{"bundle removed", func(l *life) error { return removeExisting(l.k.Path("run", "containers", l.containerID)) }},
	{"network namespace removed", func(l *life) error {
		path := l.k.Path("run", "netns", l.podID)
		return errors.Join(unix.Unmount(path, unix.MNT_DETACH), removeExisting(path))
	}},
	{"root file system unmounted", func(l *life) error {
		return unix.Unmount(l.k.Path("root", "storage", "rootfs", l.containerID, "root", "merged"), unix.MNT_DETACH)
	}},
	{"root file system removed", func(l *life) error {
		dir := l.k.Path("root", "storage", "rootfs", l.containerID)
		unmountBelow(l.k, dir)
		return removeExisting(dir)
	}},
	{"network record truncated", func(l *life) error {
		return os.Truncate(l.k.Path("root", "network", l.podID+".json"),
			100)
	}},
	{"files of the pod removed", func(l *life) error {
		dir := l.k.Path("run", "pods", l.podID)
		unmountBelow(l.k, dir)
		return removeExisting(dir)
	}},
	{"files of the pod in /etc removed", func(l *life) error {
		dir := l.k.Path("run", "etc", l.podID)
		unmountBelow(l.k, dir)
		return removeExisting(dir)
	}},
}

// TestMonitorDied kills conmon of a container that runs on: each podd says so once in its log, and podd check as long
// as the container runs.
func TestMonitorDied(t *testing.T) {
	t.Parallel()
	k := start(t)
	pod, cfg := k.pod()
	id, _ := k.runIn(pod, cfg, []string{"sleep", "1000"})
	k.ok("kill conmon", syscall.Kill(stateOf(k, k, id).Monitor.Pid, syscall.SIGKILL))
	warnings := func() int {
		log, err := os.ReadFile(k.LogFile())
		k.ok("read podd's log", err)
		return strings.Count(string(log), "container is not monitored")
	}
	for podds := 1; podds <= 2; podds++ {
		k.eventually("podd logs it", func() bool { return warnings() == podds })
		var f findings
		k.poddJSON(&f, 1, "check")
		if got, want := f.kinds(), []string{"missing monitor"}; !slices.Equal(got, want) {
			k.Errorf("check found %v, want %v", got, want)
		}
		if got := k.unmonitored(); !slices.Equal(got, []string{id}) {
			k.Errorf("containers without a monitor in the status: %v, want %s", got, id)
		}
		k.ok("restart podd", k.Restart(k.ctx(), k.Kill9))
	}
	k.eventually("podd logs it", func() bool { return warnings() == 3 })
	k.stopContainer(id, 0)
	k.checkFindsNothing("after the stop")
	if got := k.unmonitored(); got != nil {
		k.Errorf("containers without a monitor in the status: %v, want none after the stop", got)
	}
	if n := warnings(); n != 3 {
		k.Errorf("%d podds have logged it %d times, want once each", 3, n)
	}
}

// unmonitored lists the containers that podd status reports to have no monitor, which it prints, too.
func (k *kubelet) unmonitored() (ids []string) {
	k.Helper()
	var s struct {
		Pods []struct {
			Containers []struct {
				ID          string
				Unmonitored bool
			}
		}
	}
	k.poddJSON(&s, 0, "status")
	for _, p := range s.Pods {
		for _, c := range p.Containers {
			if c.Unmonitored {
				ids = append(ids, c.ID)
			}
		}
	}
	return ids
}

// removeExisting removes the paths, at least one of which must exist.
func removeExisting(paths ...string) error {
	err := fs.ErrNotExist
	for _, p := range paths {
		if _, e := os.Lstat(p); e == nil {
			err = errors.Join(os.RemoveAll(p))
		}
	}
	return err
}

// TestBehindItsBack removes resources that podd has made. The pod can then be stopped and removed, whether the daemon
// ran all the time or was killed meanwhile, and nothing is left.
func TestBehindItsBack(t *testing.T) {
	t.Parallel()
	const killTimeout = 40 * time.Second // more than all of it takes on a slow machine
	for _, handler := range sample.Some(t, "runc", "crun") {
		t.Run(handler, func(t *testing.T) {
			t.Parallel()
			k := startWith(t, daemon.Options{Handler: handler,
				Set: []string{fmt.Sprintf("runtime.kill_timeout=%q", killTimeout)}})
			some := damages
			if handler != "runc" {
				some = damages[:4] // the others do not depend on the runtime
			}
			for _, d := range some {
				for _, restart := range []bool{false, true} {
					name := d.name
					if restart {
						name += ", and the daemon too"
					}
					t.Run(name, func(t *testing.T) {
						k := k.sub(t)
						l := k.newLife()
						l.upTo(3)
						if restart {
							k.ok("kill podd", k.Kill9())
						}
						k.ok("do damage", d.do(l))
						if restart {
							k.ok("start podd", k.Start(k.ctx()))
						}
						began := time.Now()
						for _, v := range verbs[4:] {
							k.ok(v.name, v.do(l, k.ctx()))
						}
						if took := time.Since(began); took > killTimeout {
							t.Errorf("stop and removal took %v, want at most %v: signals did not reach the container", took, killTimeout)
						}
						k.newLife().upTo(1) // another pod can use the host port and the addresses
					})
				}
			}
		})
	}
}
