package record

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/checkpoint"
)

// newPod makes a pod on disk and returns its directory.
func newPod(t testing.TB, status PodStatus) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "p1")
	save(t, dir, Pod{ID: "p1", Config: &cri.PodSandboxConfig{}, BootID: "boot-1"}, status)
	return dir
}

// save writes a new record and waits until it is on the disk.
func save(t testing.TB, dir string, r any, status Status) {
	t.Helper()
	saved, err := Create(checkpoint.Files{}, dir, r, status)
	if err := errors.Join(err, saved.Wait()); err != nil {
		t.Fatal(err)
	}
}

// TestStatusThatCannotBeRead: only damage, only that of the status, and only of a pod of another boot is a loss.
func TestStatusThatCannotBeRead(t *testing.T) {
	write := func(name string, data string) func(dir string) error {
		return func(dir string) error { return os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600) }
	}
	for name, c := range map[string]struct {
		damage func(dir string) error
		want   error // in the same boot; nil for an error that may go away
		lost   bool
	}{
		"empty status":   {write(StatusFile, ""), checkpoint.ErrCorrupt, true},
		"altered status": {write(StatusFile, `{"v":1,"sha256":"00"}`+"\n{}\n"), checkpoint.ErrCorrupt, true},
		"no status":      {func(dir string) error { return os.Remove(filepath.Join(dir, StatusFile)) }, fs.ErrNotExist, true},
		"newer status": {func(dir string) error {
			return checkpoint.Write(filepath.Join(dir, StatusFile), StatusVersion+1, PodStatus{})
		}, checkpoint.ErrNewer, false},
		"unreadable status": {func(dir string) error {
			path := filepath.Join(dir, StatusFile)
			return errors.Join(os.Remove(path), os.Symlink(StatusFile, path))
		}, nil, false},
		"empty record": {write(File, ""), checkpoint.ErrCorrupt, false},
		"another's record": {func(dir string) error {
			return checkpoint.Write(filepath.Join(dir, File), Version, Pod{ID: "p2", BootID: "boot-1"})
		}, checkpoint.ErrCorrupt, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newPod(t, PodStatus{State: PodReady})
			if err := c.damage(dir); err != nil {
				t.Fatal(err)
			}
			_, _, lost, err := ReadPod(dir, "boot-1")
			if err == nil || lost != nil || checkpoint.IsPermanent(err) != (c.want != nil) ||
				c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("ReadPod in the same boot: lost = %v, error = %v, want nil, %v", lost, err, c.want)
			}
			_, s, lost, err := ReadPod(dir, "boot-2")
			if got := err == nil && errors.Is(lost, c.want) && s.State == PodReady; got != c.lost {
				t.Errorf("ReadPod in another boot = %+v, lost = %v, error = %v, want it lost: %v", s, lost, err, c.lost)
			}
		})
	}
}

// TestLostContainer: the resources of a container whose status is lost are those of its config.
func TestLostContainer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "c1")
	config := &cri.ContainerConfig{Linux: &cri.LinuxContainerConfig{Resources: &cri.LinuxContainerResources{CpuShares: 7}}}
	save(t, dir, Container{ID: "c1", PodID: "p1", Config: config}, ContainerStatus{State: ContainerCreating})
	if err := os.Truncate(filepath.Join(dir, StatusFile), 0); err != nil {
		t.Fatal(err)
	}
	_, s, lost, err := ReadContainer(dir, Pod{ID: "p1", BootID: "boot-1"}, "boot-2")
	if err != nil || lost == nil || s.State != ContainerCreated || s.Resources.GetCpuShares() != 7 {
		t.Errorf("ReadContainer = %+v, lost = %v, error = %v, want it lost, created, with 7 shares", s, lost, err)
	}
}

// TestSynced: the exit of a container is the only status that is nowhere else.
func TestSynced(t *testing.T) {
	for _, s := range []PodState{PodCreating, PodReady, PodStopping, PodNotReady} {
		if (PodStatus{State: s}).synced() {
			t.Errorf("pod that is %s: synced = true, want false", s)
		}
	}
	for s, want := range map[ContainerState]bool{
		ContainerCreating: false, ContainerCreated: false, ContainerRunning: false, ContainerExited: true,
	} {
		if got := (ContainerStatus{State: s}).synced(); got != want {
			t.Errorf("container that is %s: synced = %v, want %v", s, got, want)
		}
	}
}

// syncCounter is a disk that counts its syncs.
type syncCounter struct {
	checkpoint.Files
	n int
}

func (d *syncCounter) Sync(string) error { d.n++; return nil }

// TestSyncStatus: only an exit is synced, unless it is old.
func TestSyncStatus(t *testing.T) {
	exited := ContainerStatus{State: ContainerExited}
	for name, c := range map[string]struct {
		status Status
		age    time.Duration
		want   int
	}{
		"new": {exited, 0, 1}, "recent": {exited, writeBackTime - time.Minute, 1}, "future": {exited, -time.Hour, 1},
		"old": {exited, writeBackTime + time.Second, 0}, "running": {ContainerStatus{State: ContainerRunning}, 0, 0},
	} {
		dir, at := filepath.Join(t.TempDir(), "c1"), time.Now().Add(-c.age)
		save(t, dir, Container{ID: "c1", PodID: "p1", Config: &cri.ContainerConfig{}}, c.status)
		if err := os.Chtimes(filepath.Join(dir, StatusFile), at, at); err != nil {
			t.Fatal(err)
		}
		var disk syncCounter
		if err := SyncStatus(&disk, dir, c.status); err != nil || disk.n != c.want {
			t.Errorf("%s: %d syncs, error %v, want %d", name, disk.n, err, c.want)
		}
	}
	var disk syncCounter
	if err := SyncStatus(&disk, t.TempDir(), exited); err != nil || disk.n != 1 {
		t.Errorf("unknown time: %d syncs, error %v, want 1", disk.n, err)
	}
}

// TestRecordIsPlain: the text of a request has no escapes for browsers, which are six times as long.
func TestRecordIsPlain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "p")
	config := &cri.PodSandboxConfig{Annotations: map[string]string{"a": "<>&"}}
	save(t, dir, Pod{ID: "p", Config: config}, PodStatus{State: PodReady})
	if text, err := os.ReadFile(filepath.Join(dir, File)); err != nil || !strings.Contains(string(text), `"<>&"`) {
		t.Errorf("record = %s, %v; want <>& without escapes", text, err)
	}
}

// BenchmarkWriteStatus compares a status that is synced with one that is not. TMPDIR selects the disk.
func BenchmarkWriteStatus(b *testing.B) {
	for _, state := range []ContainerState{ContainerRunning, ContainerExited} {
		b.Run(string(state), func(b *testing.B) {
			dir := newPod(b, PodStatus{State: PodReady})
			for b.Loop() {
				if err := WriteStatus(checkpoint.Files{}, dir, ContainerStatus{State: state}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
