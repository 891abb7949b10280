package sandbox

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/archive"
	"github.com/podd-project/podd/sandbox/snapshot"
)

// verbDump saves the container. If it fails, there must be no archive, and in any case no directory with its parts.
var verbDump = verb{"CheckpointContainer", func(ctx context.Context, l *podLife) error {
	location := filepath.Join(filepath.Dir(l.e.node.Root), "archive.tar")
	err := l.e.CheckpointContainer(ctx, l.container, location, 0)
	if _, serr := os.Lstat(location); (serr == nil) != (err == nil) {
		return fmt.Errorf("archive: %w after: %w", serr, err)
	}
	if left := staged(l.e); len(left) > 0 {
		return fmt.Errorf("%v exists after: %w", left, err)
	}
	return err
}}

// TestArchiveNamesTheImage: the archive has the user's name of the image, where the kubelet sends its id.
func TestArchiveNamesTheImage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		e, _ := newEngine(t, m)
		config := containerConfig("main")
		named := config.Image.Image
		config.Image = &cri.ImageSpec{Image: fakeImageID, UserSpecifiedImage: named}
		id, err := e.CreateContainer(t.Context(), mustRunPod(t, e, "web"), config)
		must(t, err)
		must(t, e.StartContainer(t.Context(), id))
		location := filepath.Join(t.TempDir(), "archive.tar")
		must(t, e.CheckpointContainer(t.Context(), id, location, 0))
		file, _ := inArchive(t, location, "config.dump")
		var got archive.Config
		must(t, json.Unmarshal(file, &got))
		if got.Image != named || got.ImageName != named || got.ImageRef != fakeImageID {
			t.Errorf("config.dump = %+v, want the name %s and the id %s", got, named, fakeImageID)
		}
		removeEverything(t, e)
		noLeaks(t, m)
	})
}

// inArchive returns a file of an archive.
func inArchive(t *testing.T, location, name string) (data []byte, found bool) {
	t.Helper()
	f, err := os.Open(location)
	must(t, err)
	defer f.Close()
	files := tar.NewReader(f)
	for {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil, false
		}
		must(t, err)
		if h.Name == name {
			data, err = io.ReadAll(files)
			must(t, err)
			return data, true
		}
	}
}

// TestArchiveHasShm: the archive has the files in /dev/shm. A file that cannot be saved does not prevent a checkpoint.
func TestArchiveHasShm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		l, _ := runningLife(t, m)
		p, err := l.e.Pod(l.pod)
		must(t, err)
		shm := l.e.files.Paths(p.ID, p.Config).Shm
		for name, want := range map[string]bool{"file": true, "fifo": false} {
			location := filepath.Join(t.TempDir(), "archive.tar")
			switch name {
			case "file":
				must(t, os.WriteFile(filepath.Join(shm, name), []byte("shared"), 0o600))
			case "fifo":
				must(t, unix.Mkfifo(filepath.Join(shm, name), 0o600))
			}
			must(t, l.e.CheckpointContainer(t.Context(), l.container, location, 0))
			data, found := inArchive(t, location, "devshm-checkpoint.tar")
			if found != want || found && !strings.Contains(string(data), "shared") {
				t.Errorf("with %q in /dev/shm the archive has %d bytes of it, %v; want %v", name, len(data), found, want)
			}
			must(t, os.Remove(filepath.Join(shm, name)))
		}
		removeEverything(t, l.e)
		noLeaks(t, m)
	})
}

// staged returns the marks of frozen containers, and the directories in which checkpoints are written.
func staged(e *Engine) (paths []string) {
	for _, pattern := range []string{"*/containers/*/dump*", ".tmp-dump-*"} {
		found, _ := filepath.Glob(filepath.Join(e.paths.Pods(), pattern))
		paths = append(paths, found...)
	}
	return paths
}

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

// TestStopEndsACheckpoint: a stop does not wait for a container that is being saved, alone or with its pod.
func TestStopEndsACheckpoint(t *testing.T) {
	for _, save := range []verb{verbDump, verbCheckpoint} {
		t.Run(save.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t)
				e, h := newEngine(t, m)
				l := &podLife{e: e, name: "web"}
				for _, v := range runsOn("runc") {
					must(t, v.do(t.Context(), l))
				}
				defer h.hold("dump")()
				done := make(chan error, 1)
				go func() { done <- save.do(t.Context(), l) }()
				h.await("dump")
				began := time.Now()
				must(t, l.e.StopContainer(t.Context(), l.container, 0))
				if err := <-done; err == nil || time.Since(began) > time.Second {
					t.Errorf("%s = %v, %v after the stop, want an error at once", save.name, err, time.Since(began))
				}
				removeEverything(t, l.e)
				noLeaks(t, m)
			})
		})
	}
}

// TestShmIsCheckedBeforeTheFreeze: what a container has put into /dev/shm, and podd cannot save, refuses the checkpoint
// while the pod still runs.
func TestShmIsCheckedBeforeTheFreeze(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		l, h := saved(t, m, "runc")
		p, err := l.e.Pod(l.pod)
		must(t, err)
		must(t, unix.Mkfifo(filepath.Join(l.e.files.Paths(p.ID, p.Config).Shm, "fifo"), 0o600))
		dumps := h.count("dump")
		err = verbCheckpoint.do(t.Context(), l)
		if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "/dev/shm") {
			t.Errorf("CheckpointPod = %v, want %v for /dev/shm", err, errdefs.ErrFailedPrecondition)
		}
		if got := h.count("dump"); got != dumps || dumps != 1 {
			t.Errorf("the runtime saved %d times, then %d times, want once before the FIFO was made", dumps, got)
		}
		removeEverything(t, l.e)
		noLeaks(t, m)
	})
}

// TestRestartThaws: the next podd thaws a container that one was killed in, and removes what it had saved, also if that
// was killed later, when the container ran again.
func TestRestartThaws(t *testing.T) {
	t.Run("frozen", func(t *testing.T) { restartThaws(t, true, 1) })
	t.Run("while images are moved", func(t *testing.T) { restartThaws(t, false, 0) })
}

func restartThaws(t *testing.T, frozen bool, want int) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		l, h := runningLife(t, m)
		c, err := l.e.Container(l.container)
		must(t, err)
		// Here a killed podd still runs deferred functions, which would remove the directory.
		if frozen {
			_, err = c.mark().Set()
			must(t, err)
		}
		must(t, os.MkdirAll(filepath.Join(snapshot.Staging(l.e.paths.Pods()), "container-app"), 0o700))
		kill(l.e, h)
		e, h := makeEngine(t, m, "boot-1")
		must(t, e.Recover(t.Context()))
		must(t, e.WaitRecovered(t.Context()))
		if n := h.count("thaw"); n != want {
			t.Errorf("thawed %d times, want %d times", n, want)
		}
		if left := staged(e); len(left) > 0 {
			t.Errorf("%v exists, want it removed", left)
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
		if got := staged(e); len(got) != 2 || got[0] != string(c.mark()) {
			t.Errorf("%v exist while the pod is saved, want the mark and a directory for the images", got)
		}
		release()
		must(t, <-done)
		if left := staged(e); len(left) > 0 {
			t.Errorf("%v exists after the checkpoint, want it removed", left)
		}
		removeEverything(t, e)
		noLeaks(t, m)
	})
}

// TestCheckpointAfterFailedThaw is refused in words: the container may still be frozen.
func TestCheckpointAfterFailedThaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, h := runningLife(t, newMachine(t))
		c, err := l.e.Container(l.container)
		must(t, err)
		_, err = c.mark().Set() // the one that a killed podd has left
		must(t, err)
		location := filepath.Join(t.TempDir(), "archive.tar")
		err = l.e.CheckpointContainer(t.Context(), l.container, location, 0)
		if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "restart podd") {
			t.Errorf("CheckpointContainer = %v, want %v that says what to do", err, errdefs.ErrFailedPrecondition)
		}
		if n := h.count("dump"); n != 0 {
			t.Errorf("the runtime saved %d times, want never", n)
		}
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

// TestCheckpointTimeout: a request may have a longer limit than the configuration, which holds for those without one.
func TestCheckpointTimeout(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{
		0: DefaultConfig().CheckpointTimeout, time.Second: time.Second, time.Hour: time.Hour,
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newMachine(t)
			l, h := runningLife(t, m)
			release := h.hold("dump")
			defer release()
			began := time.Now()
			err := l.e.CheckpointContainer(t.Context(), l.container, filepath.Join(m.dir, "archive.tar"), asked)
			if took := time.Since(began); took != want || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("CheckpointContainer with a limit of %v = %v after %v, want an error after %v", asked, err, took, want)
			}
			release()
			removeEverything(t, l.e)
			noLeaks(t, m)
		})
	}
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
			go func() { done <- e.CheckpointContainer(t.Context(), l.container, location, 0) }()
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
