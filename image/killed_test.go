package image_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/image"
)

// TestDaemonKilledWhileUnpacking kills the daemon while a layer is being unpacked: no process and no mount stays, and
// after the next start and pull the store has the files of one pull, and nothing else.
func TestDaemonKilledWhileUnpacking(t *testing.T) {
	if os.Getenv(pullRole) != "" {
		pullAsDaemon(t)
		return
	}
	reg := newRegistry(t)
	files := tree{}
	for i := range 5000 {
		files[fmt.Sprintf("d%d/%d", i%100, i)] = ""
	}
	reg.push(t, "app:v1", craft(t, nil, files))
	ref := reg.host + "/app:v1"
	dir := t.TempDir()
	cfg := configIn(t, dir, reg.host)
	pids := killedDaemon(t, pullRole+"="+dir+" "+ref, filepath.Join(cfg.Root, "tmp/pull-*/layer-0/files/d*"))
	if len(pids) == 0 {
		t.Error("the daemon had no process while it unpacked, want that of the pull")
	}
	awaitEnd(t, pids)
	if mounts := readFile(t, "/proc/self/mountinfo"); strings.Contains(mounts, dir) {
		t.Error("a mount below the store is left")
	}
	s := open(t, cfg)
	checkEmpty(t, s)
	checkNoFiles(t, filepath.Join(cfg.Root, "tmp"))
	pull(t, s, ref)
	clean := config(t, reg.host)
	pull(t, open(t, clean), ref)
	if got, want := storeFiles(t, cfg), storeFiles(t, clean); got != want {
		t.Errorf("files of the store after the next pull:\n%s\nwant those of one pull:\n%s", got, want)
	}
}

// TestDaemonKilledWhileExporting kills the daemon while it writes an archive: the directory of the archive has no file,
// not even a hidden one, and the next start leaves none in the store.
func TestDaemonKilledWhileExporting(t *testing.T) {
	if at := os.Getenv(exportRole); at != "" {
		dir, args, _ := strings.Cut(at, " ")
		id, file, _ := strings.Cut(args, " ")
		err := open(t, configIn(t, dir)).Export(t.Context(), id, file)
		t.Errorf("Export() = %v, want to be killed", err)
		return
	}
	dir, target := t.TempDir(), t.TempDir()
	cfg := configIn(t, dir)
	img := craft(t, nil, tree{"large": strings.Repeat("x", 256<<20)})
	archive := filepath.Join(t.TempDir(), "docker.tar")
	writeDockerArchive(t, archive, map[string]v1.Image{"registry.test/large:v1": img})
	first, err := image.New(cfg.Config, cfg.Node, logrus.StandardLogger())
	if err != nil {
		t.Fatal(err)
	}
	_, err = first.LoadFile(t.Context(), archive)
	if err := errors.Join(err, first.Close()); err != nil {
		t.Fatal(err)
	}
	args := dir + " " + imageID(t, img) + " " + filepath.Join(target, "image.tar")
	killedDaemon(t, exportRole+"="+args, filepath.Join(cfg.Root, "tmp/export-*/archive"))
	checkNoFiles(t, target)
	s := open(t, cfg)
	checkNoFiles(t, filepath.Join(cfg.Root, "tmp"))
	if err := s.Export(t.Context(), imageID(t, img), filepath.Join(target, "image.tar")); err != nil {
		t.Error(err)
	}
}

// exportRole is the environment of a test binary that exports: the directory of its store, an image, and the archive.
const exportRole = "PODD_TEST_EXPORT"

// killedDaemon runs the test again in a process with the role, kills it as soon as a file matches the pattern, and
// returns the processes that it had started by then.
func killedDaemon(t *testing.T, role, pattern string) (pids []int) {
	t.Helper()
	daemon := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
	daemon.Env = append(os.Environ(), role)
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = daemon.Process.Kill() }) // if the test ends early
	eventually(t, "there is a file "+pattern, func() bool {
		written, _ := filepath.Glob(pattern)
		return len(written) > 0
	})
	pids = descendants(t, daemon.Process.Pid)
	if err := daemon.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = daemon.Wait() // killed
	return pids
}

func awaitEnd(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		eventually(t, fmt.Sprintf("process %d ends with its daemon", pid), func() bool { return ended(pid) })
	}
}

// ended reports whether a process runs no more; its parent, which is not this test, may not have waited for it yet.
func ended(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// descendants returns the processes that parent and its children have started.
func descendants(t *testing.T, parent int) (out []int) {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		raw, _ := os.ReadFile(list) // the thread may have ended
		for field := range strings.FieldsSeq(string(raw)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			out = append(append(out, pid), descendants(t, pid)...)
		}
	}
	return out
}

// storeFiles returns how many files and directories each directory of a store has, down to the layers.
func storeFiles(t *testing.T, cfg setup) string {
	t.Helper()
	var out strings.Builder
	for _, pattern := range []string{"*", "overlay/*", "overlay/l/*", "overlay/*/*", "overlay/*/diff/*",
		"overlay-layers/*", "overlay-images/*", "tmp/*", "overlay/staging/*",
		"overlay/tempdirs/*", "../run/*/*"} {
		found, err := filepath.Glob(filepath.Join(cfg.Root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%s: %d\n", pattern, len(found))
	}
	return out.String()
}
