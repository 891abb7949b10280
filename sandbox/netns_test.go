package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/podd-project/podd/checkpoint"
	"github.com/podd-project/podd/sandbox/garbage"
)

// loseRecord removes a pod's record, as if it had been damaged and quarantined. Its container stays in no record.
func loseRecord(t *testing.T, e *Engine, pod string) {
	t.Helper()
	must(t, checkpoint.Remove(e.paths.Pods(), pod))
}

// TestNetnsDirIsShared: in a directory that other programs use, garbage is only what a pod of this podd has claimed.
// Files of others stay, also those of another podd with other directories, and of one that is named like a pod's.
func TestNetnsDirIsShared(t *testing.T) {
	m, other := newMachine(t), newMachine(t)
	other.netnsDir = m.netnsDir
	e, h := newEngine(t, m)
	theirs, _ := newEngine(t, other)
	lost, kept, foreign := mustRunPod(t, e, "lost"), mustRunPod(t, e, "kept"), mustRunPod(t, theirs, "foreign")
	must(t, e.StopPod(t.Context(), kept))
	must(t, e.RemovePod(t.Context(), kept))
	kept = mustRunPod(t, e, "kept")
	spared := []string{"cni-1", "x", "podd-" + strings.Repeat("ab", 32), "podd-" + foreign}
	for _, name := range spared[:3] {
		must(t, os.WriteFile(filepath.Join(m.netnsDir, name), nil, 0o600))
	}
	kill(e, h)
	loseRecord(t, e, lost)
	e, _ = makeEngine(t, m, "boot-1")
	found, err := e.Check(t.Context())
	must(t, err)
	if !slices.Contains(found, Finding{Problem: FindingLeak, What: garbage.Netns, ID: lost}) {
		t.Errorf("Check = %+v, want the network namespace of the pod without a record", found)
	}
	for _, f := range found {
		if f.ID != lost {
			t.Errorf("Check found %+v, want nothing but of the pod without a record", f)
		}
	}
	must(t, e.Recover(t.Context()))
	must(t, e.WaitRecovered(t.Context()))
	must(t, e.GC(t.Context()))
	checkFinds(t, e, nil)
	want := append(spared, "podd-"+kept)
	slices.Sort(want)
	checkNames(t, m.netnsDir, want...)
	must(t, e.RemoveAll(t.Context()))
	checkNames(t, m.netnsDir, slices.DeleteFunc(want, func(name string) bool { return name == "podd-"+kept })...)
	must(t, theirs.RemoveAll(t.Context()))
}

// TestNetnsDirChanges: a pod's network namespace is where its record says, whatever is configured now: pods of an older
// podd are in <run>/netns.
func TestNetnsDirChanges(t *testing.T) {
	m := newMachine(t)
	dirs := []string{"", filepath.Join(m.dir, "netns"), filepath.Join(m.dir, "elsewhere")}
	for i, from := range dirs {
		to := dirs[(i+1)%len(dirs)]
		m.netnsDir = from
		e, h := newEngine(t, m)
		kept, lost := mustRunPod(t, e, "kept"), mustRunPod(t, e, "lost")
		kill(e, h)
		loseRecord(t, e, lost)
		m.netnsDir = to
		e, h = newEngine(t, m)
		checkFinds(t, e, nil)
		p, err := e.Pod(kept)
		must(t, err)
		if _, err := os.Lstat(p.Netns); err != nil {
			t.Errorf("from %q to %q: the network namespace of a pod is gone: %v", from, to, err)
		}
		must(t, e.RemoveAll(t.Context()))
		kill(e, h)
		noLeaks(t, m)
	}
}

// TestStaleClaim: a claim whose file is gone, or that names another file than the pod's, claims nothing.
func TestStaleClaim(t *testing.T) {
	m := newMachine(t)
	e, _ := newEngine(t, m)
	id, victim := strings.Repeat("ab", 32), filepath.Join(m.netnsDir, "x")
	must(t, os.MkdirAll(m.netnsDir, 0o755))
	must(t, os.WriteFile(victim, nil, 0o600))
	for _, target := range []string{victim, filepath.Join(m.netnsDir, "podd-"+id)} {
		must(t, os.MkdirAll(e.paths.PodRun(id), 0o700))
		must(t, os.Symlink(target, e.paths.ClaimLink(id)))
		must(t, e.GC(t.Context()))
		checkFinds(t, e, nil)
	}
	checkNames(t, m.netnsDir, "x")
}

// checkNames checks what is in dir.
func checkNames(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, want) {
		t.Errorf("in %s: %v, want %v", dir, got, want)
	}
}
