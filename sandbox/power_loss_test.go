package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/podd-project/podd/checkpoint"
	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/garbage"
	"github.com/podd-project/podd/sandbox/record"
)

// damages are what a power loss makes of a file that is not synced, besides an earlier content.
var damages = map[string]func(path string) error{
	"empty":     func(path string) error { return os.Truncate(path, 0) },
	"truncated": func(path string) error { return os.Truncate(path, 40) },
	"zeros":     func(path string) error { return os.WriteFile(path, make([]byte, 300), 0o600) },
	"garbage":   func(path string) error { return os.WriteFile(path, bytes.Repeat([]byte("\xff\n"), 200), 0o600) },
	"absent":    os.Remove,
}

// found are all that a power loss may leave in a status: each state of it, and each damage.
func found[S ~string](status func(S) record.Status, states ...S) map[string]func(path string) error {
	all := map[string]func(string) error{}
	for _, s := range states {
		all[string(s)] = func(path string) error {
			return record.WriteStatus(checkpoint.Files{}, filepath.Dir(path), status(s))
		}
	}
	maps.Copy(all, damages)
	return all
}

// brokenNode is a machine whose power was lost: a pod with a container in each state, and a pod that was stopped.
type brokenNode struct {
	m                       *machine
	pod, stopped            string
	created, running, ended string
}

func newBrokenNode(t *testing.T) *brokenNode {
	t.Helper()
	n := &brokenNode{m: newMachine(t)}
	e, h := newEngine(t, n.m)
	n.pod, n.stopped = mustRunPod(t, e, "web"), mustRunPod(t, e, "stopped")
	n.created, n.running = mustCreate(t, e, n.pod, "a"), mustCreate(t, e, n.pod, "b")
	n.ended = mustCreate(t, e, n.pod, "c")
	mustStart(t, e, n.running)
	mustStart(t, e, n.ended)
	n.m.exit(n.ended, oci.Exit{Code: 7, Known: true, At: time.Now()})
	waitExited(t, e, n.ended)
	must(t, e.StopPod(t.Context(), n.stopped))
	kill(e, h)
	n.m.reboot(t)
	return n
}

// status is the path of a status: of a pod, or of a container of n.pod.
func (n *brokenNode) status(pod, container string) string {
	dir := filepath.Join(n.m.dir, "root/pods", pod)
	if container != "" {
		dir = filepath.Join(dir, record.ContainersDir, container)
	}
	return filepath.Join(dir, record.StatusFile)
}

// unsynced is a status that is not synced, with what may be found in it.
type unsynced struct {
	path  string
	found map[string]func(path string) error
}

func (n *brokenNode) files() map[string]unsynced {
	pods := func(states ...record.PodState) map[string]func(string) error {
		return found(func(s record.PodState) record.Status { return record.PodStatus{State: s} }, states...)
	}
	containers := func(states ...record.ContainerState) map[string]func(string) error {
		return found(func(s record.ContainerState) record.Status { return record.ContainerStatus{State: s} }, states...)
	}
	return map[string]unsynced{
		"ready pod": {n.status(n.pod, ""), pods(record.PodCreating, record.PodReady)},
		"stopped pod": {
			n.status(n.stopped, ""), pods(record.PodCreating, record.PodReady, record.PodStopping, record.PodNotReady),
		},
		"created container": {
			n.status(n.pod, n.created), containers(record.ContainerCreating, record.ContainerCreated),
		},
		"running container": {
			n.status(n.pod, n.running),
			containers(record.ContainerCreating, record.ContainerCreated, record.ContainerRunning),
		},
	}
}

// eachLoss runs body with each thing that may be found in each status.
func eachLoss(t *testing.T, body func(t *testing.T, n *brokenNode, path string)) {
	for what, file := range new(brokenNode{m: &machine{}}).files() {
		for how := range file.found {
			t.Run(what+", "+how, func(t *testing.T) {
				n := newBrokenNode(t)
				path := n.files()[what].path
				must(t, file.found[how](path))
				body(t, n, path)
			})
		}
	}
}

// TestPowerLoss: whatever a power loss leaves of statuses that are not synced, pods are not ready, containers have
// exited, with the exit code if they had one, nothing is called damaged, and everything can be removed.
func TestPowerLoss(t *testing.T) {
	eachLoss(t, func(t *testing.T, n *brokenNode, path string) {
		temporary := filepath.Join(filepath.Dir(path), ".tmp-"+record.StatusFile+"-1") // of a write that was not completed
		must(t, os.WriteFile(temporary, nil, 0o600))
		e, h := n.start(t, "boot-2")
		n.checkRebooted(t, e)
		if _, err := os.Lstat(temporary); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("temporary file after the start: %v, want %v", err, fs.ErrNotExist)
		}
		kill(e, h)

		// What podd has written after the boot may be lost by the next power loss, too.
		ended := n.exits(t)
		must(t, os.Truncate(n.status(n.pod, ""), 0))
		must(t, os.Truncate(n.status(n.stopped, ""), 0))
		e, _ = n.start(t, "boot-3")
		n.checkRebooted(t, e)
		for id, at := range n.exits(t) {
			if !at.Equal(ended[id]) {
				t.Errorf("container %s ended at %v after the second loss, want %v as before", id, at, ended[id])
			}
		}
		must(t, e.StopPod(t.Context(), n.pod))
		must(t, e.RemovePod(t.Context(), n.pod))
		must(t, e.RemovePod(t.Context(), n.stopped))
		noLeaks(t, n.m)
		must(t, e.RemovePod(t.Context(), mustRunPod(t, e, "web")))
		noLeaks(t, n.m)
	})
}

// start starts an engine after a boot, and checks that it says what was lost.
func (n *brokenNode) start(t *testing.T, boot string) (*Engine, *faults) {
	t.Helper()
	damaged := 0
	for _, file := range n.files() {
		var any map[string]any
		if checkpoint.Read(file.path, record.StatusVersion, &any) != nil {
			damaged++
		}
	}
	e, h := makeEngine(t, n.m, boot)
	logged := test.NewLocal(e.deps.Log.(*logrus.Logger))
	must(t, e.Recover(t.Context()))
	must(t, e.WaitRecovered(t.Context()))
	must(t, e.GC(t.Context()))
	told := 0
	for _, entry := range logged.AllEntries() {
		if strings.HasPrefix(entry.Message, "status was lost when the machine went down") {
			told++
		}
		if entry.Level <= logrus.ErrorLevel {
			t.Errorf("logged %q, %v, want no error", entry.Message, entry.Data)
		}
	}
	if told != damaged {
		t.Errorf("%d lost statuses logged, want %d", told, damaged)
	}
	return e, h
}

func (n *brokenNode) checkRebooted(t *testing.T, e *Engine) {
	t.Helper()
	if pods, containers := len(e.Pods()), len(e.Containers()); pods != 2 || containers != 3 {
		t.Errorf("%d pods and %d containers are listed, want 2 and 3", pods, containers)
	}
	for _, id := range []string{n.pod, n.stopped} {
		p, err := e.Pod(id)
		must(t, err)
		if s := p.Status(); s.State != record.PodNotReady {
			t.Errorf("pod = %+v, want %s", s, record.PodNotReady)
		}
		if _, err := e.CreateContainer(t.Context(), id, containerConfig("d")); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("CreateContainer = %v, want it refused", err)
		}
	}
	for id, code := range map[string]int32{n.created: 255, n.running: 255, n.ended: 7} {
		if s := waitExited(t, e, id); s.ExitCode != code || code == 255 && s.Reason != reasonUnknown {
			t.Errorf("container = %+v, want exit code %d", s, code)
		}
	}
	if q := troubles(e, garbage.Quarantined); len(q) > 0 {
		t.Errorf("quarantined = %v, want none", q)
	}
}

// exits returns the times of the exits on disk.
func (n *brokenNode) exits(t *testing.T) map[string]time.Time {
	t.Helper()
	times := map[string]time.Time{}
	for _, id := range []string{n.created, n.running, n.ended} {
		_, s, _, err := record.ReadContainer(filepath.Dir(n.status(n.pod, id)), record.Pod{ID: n.pod}, "")
		must(t, err)
		if s.State != record.ContainerExited {
			t.Errorf("container on disk is %s, want %s", s.State, record.ContainerExited)
		}
		times[id] = s.FinishedAt
	}
	return times
}

// TestDamagedStatus: no power loss explains damage in the boot in which a pod was created, and none explains a
// status of a newer format.
func TestDamagedStatus(t *testing.T) {
	for what, c := range map[string]struct {
		boot   string
		damage func(path string) error
	}{
		"same boot, empty":     {"boot-1", damages["empty"]},
		"same boot, truncated": {"boot-1", damages["truncated"]},
		"same boot, garbage":   {"boot-1", damages["garbage"]},
		"same boot, absent":    {"boot-1", damages["absent"]},
		"newer": {"boot-2", func(path string) error {
			return checkpoint.Write(path, record.StatusVersion+1, record.PodStatus{})
		}},
	} {
		for _, of := range []string{"pod", "container"} {
			t.Run(what+", "+of, func(t *testing.T) {
				n := newBrokenNode(t)
				bad, path := n.pod, n.status(n.pod, "")
				if of == "container" {
					bad, path = n.running, n.status(n.pod, n.running)
				}
				must(t, c.damage(path))
				e, _ := newEngineAt(t, n.m, c.boot)
				if q := troubles(e, garbage.Quarantined); len(q) != 1 || q[0].ID != bad {
					t.Errorf("quarantined = %v, want %s", q, bad)
				}
				_, perr := e.Pod(n.pod)
				_, cerr := e.Container(n.running)
				if gone := perr != nil; gone != (of == "pod") || cerr == nil {
					t.Errorf("pod is gone: %v, container is gone: %v, want only what is damaged to be gone", perr, cerr)
				}
			})
		}
	}
}

// TestPowerLossAtEveryStep loses the power at every outside call of every verb. Of the statuses but those of exited
// containers, in turns one is lost, one as it was at first, and one has reached the disk.
func TestPowerLossAtEveryStep(t *testing.T) {
	eachStep(t, true, func(t *testing.T, s scenario, m *machine, l *podLife, h *faults) (*Engine, bool) {
		crashed := h.runUntilDead(func(ctx context.Context) { s.verb.do(ctx, l) })
		kill(l.e, h)
		m.reboot(t)
		pods, codes := losePower(t, m, h.failAt)
		e, _ := newEngineAt(t, m, "boot-2")
		checkAfterLoss(t, e, pods, codes)
		return e, crashed
	})
}

// losePower loses statuses that are not synced, and in turns the records of what was being created; turn is that of the
// first. It returns the number of pods whose records are on disk, and the exit codes of their containers, 255 of those
// that have not exited.
func losePower(t *testing.T, m *machine, turn int) (pods int, codes map[string]int32) {
	t.Helper()
	codes = map[string]int32{}
	lose := func(path string, first record.Status) error {
		turn++
		switch turn % 3 {
		case 0:
			return damages["empty"](path)
		case 1:
			return record.WriteStatus(checkpoint.Files{}, filepath.Dir(path), first)
		}
		return nil
	}
	must(t, filepath.WalkDir(filepath.Join(m.dir, "root/pods"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != record.StatusFile || strings.Contains(strings.TrimPrefix(path, m.dir), "/.") {
			return err
		}
		dir := filepath.Dir(path)
		containers := filepath.Dir(dir)
		if turn++; loseUnsynced(t, dir, turn) {
			return fs.SkipDir
		}
		if filepath.Base(containers) != record.ContainersDir {
			pods++
			return lose(path, record.PodStatus{State: record.PodCreating})
		}
		_, s, _, err := record.ReadContainer(dir, record.Pod{ID: filepath.Base(filepath.Dir(containers))}, "")
		if err == nil && s.State == record.ContainerExited {
			codes[filepath.Base(dir)] = s.ExitCode
			return nil
		}
		codes[filepath.Base(dir)] = 255
		return errors.Join(err, lose(path, record.ContainerStatus{State: record.ContainerCreating}))
	}))
	return pods, codes
}

// loseUnsynced takes back the sync of a record, and damages it or not, or removes all of it, if its pod or container
// was being created: its sync may have been slower. It does so in three of four turns. A record that was not synced
// when the engine died is lost in any turn.
func loseUnsynced(t *testing.T, dir string, turn int) (lost bool) {
	t.Helper()
	if turn%4 != 0 {
		takeBackSync(t, dir)
	}
	if _, err := os.Lstat(filepath.Join(dir, record.UnsyncedFile)); err != nil {
		return false
	}
	switch turn % 4 {
	case 1:
		must(t, damages["empty"](filepath.Join(dir, record.UnsyncedFile)))
	case 2:
		must(t, os.RemoveAll(dir))
	}
	return true
}

// takeBackSync gives the record in dir the name that it had before its sync, if its pod or container was being created.
func takeBackSync(t *testing.T, dir string) {
	t.Helper()
	var status struct{ State string }
	must(t, checkpoint.Read(filepath.Join(dir, record.StatusFile), record.StatusVersion, &status))
	if status.State != string(record.PodCreating) { // or record.ContainerCreating
		return
	}
	err := os.Rename(filepath.Join(dir, record.File), filepath.Join(dir, record.UnsyncedFile))
	if !errors.Is(err, fs.ErrNotExist) { // it was not synced
		must(t, err)
	}
}

func checkAfterLoss(t *testing.T, e *Engine, pods int, codes map[string]int32) {
	t.Helper()
	if n := len(e.Pods()); n != pods {
		t.Errorf("%d pods are listed, want %d", n, pods)
	}
	for _, p := range e.Pods() {
		if s := p.Status().State; s != record.PodNotReady {
			t.Errorf("pod is %s, want %s", s, record.PodNotReady)
		}
	}
	got := map[string]int32{}
	for _, c := range e.Containers() {
		got[c.ID] = waitExited(t, e, c.ID).ExitCode
	}
	if fmt.Sprint(got) != fmt.Sprint(codes) {
		t.Errorf("exit codes = %v, want %v", got, codes)
	}
	if q := troubles(e, garbage.Quarantined); len(q) > 0 {
		t.Errorf("quarantined = %v, want none", q)
	}
	synctest.Wait()
}
