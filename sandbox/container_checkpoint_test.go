package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/containerd/errdefs"
)

// verbDump saves the container. If it fails, there must be no archive, and in any case no directory with its parts.
var verbDump = verb{"CheckpointContainer", func(ctx context.Context, l *podLife) error {
	location := filepath.Join(filepath.Dir(l.e.cfg.Load().Root), "archive.tar")
	err := l.e.CheckpointContainer(ctx, l.container, location)
	if _, serr := os.Lstat(location); (serr == nil) != (err == nil) {
		return fmt.Errorf("archive: %w after: %w", serr, err)
	}
	c, cerr := l.e.Container(l.container)
	if cerr != nil {
		return cerr
	}
	if _, serr := os.Lstat(c.staging()); serr == nil {
		return fmt.Errorf("%s exists after: %w", c.staging(), err)
	}
	return err
}}

// runningLife returns a pod with a container that runs.
func runningLife(t *testing.T, m *machine) (*podLife, *faults) {
	t.Helper()
	e, h := newEngine(t, m)
	l := &podLife{e: e, name: "web"}
	for _, v := range verbs[:3] {
		must(t, v.do(t.Context(), l))
	}
	return l, h
}

// TestStopEndsACheckpoint: a stop does not wait for a container that is being saved.
func TestStopEndsACheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		l, h := runningLife(t, m)
		defer h.hold("dump")()
		done := make(chan error, 1)
		go func() { done <- verbDump.do(t.Context(), l) }()
		h.await("dump")
		must(t, l.e.StopContainer(t.Context(), l.container, 0))
		if err := <-done; err == nil {
			t.Errorf("CheckpointContainer = %v, want an error", err)
		}
		removeEverything(t, l.e)
		noLeaks(t, m)
	})
}

// TestRestartThaws: the next podd thaws a container that one was killed in, and removes what it had saved.
func TestRestartThaws(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		l, h := runningLife(t, m)
		c, err := l.e.Container(l.container)
		must(t, err)
		// Here a killed podd still runs deferred functions, which would remove the directory.
		must(t, os.Mkdir(c.staging(), 0o700))
		kill(l.e, h)
		e, h := makeEngine(t, m, "boot-1")
		must(t, e.Recover(t.Context()))
		must(t, e.WaitRecovered(t.Context()))
		if n := h.count("thaw"); n != 1 {
			t.Errorf("thawed %d times, want once", n)
		}
		if _, err := os.Lstat(c.staging()); err == nil {
			t.Errorf("%s exists, want it removed", c.staging())
		}
		l.e = e
		must(t, verbDump.do(t.Context(), l))
		removeEverything(t, e)
		noLeaks(t, m)
	})
}

// TestStagingMarksFrozen: while the runtime saves a pod, its container has the directory by which the next podd knows
// that it may be frozen, see TestRestartThaws; afterwards it has none.
func TestStagingMarksFrozen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		e, h := newEngine(t, m)
		l := &podLife{e: e, name: "web"}
		for _, v := range runsOn("runc") {
			must(t, v.do(t.Context(), l))
		}
		c, err := e.Container(l.container)
		must(t, err)
		release, done := h.hold("dump"), make(chan error, 1)
		go func() { done <- verbCheckpoint.do(t.Context(), l) }()
		h.await("dump")
		if _, err := os.Lstat(c.staging()); err != nil {
			t.Errorf("while the pod is saved: %v", err)
		}
		release()
		must(t, <-done)
		if _, err := os.Lstat(c.staging()); err == nil {
			t.Errorf("%s exists after the checkpoint, want it removed", c.staging())
		}
		removeEverything(t, e)
		noLeaks(t, m)
	})
}

// TestCheckpointOfWhatDoesNotRun is refused.
func TestCheckpointOfWhatDoesNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := runningLife(t, newMachine(t))
		must(t, l.e.StopContainer(t.Context(), l.container, 0))
		if err := verbDump.do(t.Context(), l); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("CheckpointContainer = %v, want %v", err, errdefs.ErrFailedPrecondition)
		}
	})
}

// TestCheckpointsAtOnce: more than the budget allows wait, and are made when there is room.
func TestCheckpointsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		e, h := newEngine(t, m)
		release := h.hold("dump")
		const pods = 6
		done := make(chan error, pods)
		for i := range pods {
			l := &podLife{e: e, name: fmt.Sprint("web", i)}
			for _, v := range verbs[:3] {
				must(t, v.do(t.Context(), l))
			}
			location := filepath.Join(m.dir, l.name+".tar")
			go func() { done <- e.CheckpointContainer(t.Context(), l.container, location) }()
		}
		synctest.Wait()
		if n := h.count("dump"); n != 4 {
			t.Errorf("%d checkpoints at once, want 4", n)
		}
		release()
		for range pods {
			must(t, <-done)
		}
		removeEverything(t, e)
		noLeaks(t, m)
	})
}
