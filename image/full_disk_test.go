package image_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/image"
)

// TestRemoveOnFullDisk: an image can be removed from a file system without a free byte, or it stays in the list, so
// that the kubelet can free the node. Played on a tmpfs and on ext4 without blocks for root.
func TestRemoveOnFullDisk(t *testing.T) {
	reg := newRegistry(t)
	for _, name := range []string{"a", "b", "c"} {
		reg.push(t, name+":v1", craft(t, nil, tree{"file": strings.Repeat(name, 200_000)}))
	}
	for name, mount := range map[string]func(*testing.T, string){
		"tmpfs": func(t *testing.T, dir string) { mountTmpfs(t, dir, "size=24m") }, "ext4": mountExt4,
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t, reg.host)
			mount(t, cfg.Root)
			s := open(t, cfg)
			for _, name := range []string{"a", "b", "c"} {
				pull(t, s, reg.host+"/"+name+":v1")
			}
			fillDisk(t, cfg.Root)
			removeOnFull(t, s, reg.host+"/a:v1")
			if len(images(t, s)) != 2 {
				t.Errorf("images = %v, want two", images(t, s))
			}

			// Without the ballast, as after a podd that was killed in a removal.
			if err := os.Remove(filepath.Join(cfg.Root, "ballast")); err != nil {
				t.Fatal(err)
			}
			fillDisk(t, cfg.Root)
			err := s.Remove(t.Context(), reg.host+"/b:v1")
			if left := len(images(t, s)); err != nil && left != 2 || err == nil && left != 1 {
				t.Errorf("Remove without the ballast = %v, and %d images are listed", err, left)
			}
			freeDisk(t, cfg.Root)
			if err := errors.Join(s.Remove(t.Context(), reg.host+"/b:v1"), s.Remove(t.Context(), reg.host+"/c:v1")); err != nil {
				t.Errorf("Remove with free space = %v", err)
			}
			if dirs, _ := filepath.Glob(filepath.Join(cfg.Root, "overlay/*/diff")); len(dirs) > 0 {
				t.Errorf("layers are left: %q", dirs)
			}
		})
	}
}

// removeOnFull removes an image and checks that this frees its space.
func removeOnFull(t *testing.T, s *image.Store, ref string) {
	t.Helper()
	before := len(images(t, s))
	if err := s.Remove(t.Context(), ref); err != nil {
		t.Fatalf("Remove on a full disk = %v", err)
	}
	if err := s.Remove(t.Context(), ref); err != nil {
		t.Errorf("Remove again = %v", err)
	}
	if after := len(images(t, s)); after != before-1 {
		t.Errorf("%d images, want %d", after, before-1)
	}
}

func images(t *testing.T, s *image.Store) []*image.Image {
	t.Helper()
	list, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// fillDisk writes files until not a byte is free, and freeDisk removes them.
func fillDisk(t *testing.T, dir string) {
	t.Helper()
	for _, piece := range []int{64 << 10, 4096, 512, 1} {
		file, err := os.OpenFile(filepath.Join(dir, "fill"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = file.Write(make([]byte, piece))
		}
		file.Close()
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
}

func freeDisk(t *testing.T, dir string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, "fill")); err != nil {
		t.Fatal(err)
	}
}

// mountExt4 mounts an ext4 of 32 MiB without blocks for root on a directory.
func mountExt4(t *testing.T, dir string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, 32<<20), os.MkdirAll(dir, 0o711)); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"mkfs.ext4", "-q", "-m", "0", file}, {"mount", "-o", "loop", file, dir}} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %s", command, err, out)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
}

// TestLayersOfFailedPulls: what a pull that failed has stored is counted as disk space, and removed on request, or by
// itself when it is an hour old.
func TestLayersOfFailedPulls(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	img := craft(t, nil, tree{"a": "1"}, tree{"b": strings.Repeat("2", 1<<20)}, tree{"c": "3"})
	reg.push(t, "app:v1", img)
	cfg := config(t, reg.host)
	stored := func() int {
		left, _ := filepath.Glob(filepath.Join(cfg.Root, "overlay/*/diff"))
		return len(left)
	}
	reg.setGuard(func(w http.ResponseWriter, r *http.Request) bool {
		bad := r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, layerDigest(t, img, 2))
		for range 3000 {
			if !bad || stored() == 2 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if bad {
			w.WriteHeader(http.StatusNotFound)
		}
		return bad
	})
	s := open(t, cfg)
	failed := func() {
		t.Helper()
		if _, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v1"}); err == nil || stored() != 2 {
			t.Fatalf("Pull = %v with %d layers, want an error and two layers", err, stored())
		}
		eventually(t, "the layers are counted", func() bool { return s.Disk().Unused > 1<<20 })
	}
	failed()
	if usage, _, err := s.Usage(t.Context()); err != nil || usage[0].Bytes < 1<<20 {
		t.Errorf("Usage = %+v, %v, want the layers in it", usage, err)
	}
	if err := s.RemoveUnusedLayers(); err != nil || stored() != 0 {
		t.Errorf("RemoveUnusedLayers = %v, and %d layers are left", err, stored())
	}
	eventually(t, "no layers are counted", func() bool { return s.Disk().Unused == 0 })

	failed()
	closeStore(t, s)
	s = open(t, cfg)
	time.Sleep(100 * time.Millisecond)
	if stored() != 2 {
		t.Fatalf("%d layers after a restart, want those of the last pull", stored())
	}
	closeStore(t, s)
	makeOld(t, filepath.Join(cfg.Root, "overlay-layers/layers.json"))
	open(t, cfg)
	eventually(t, "old layers are removed", func() bool { return stored() == 0 })
}

// makeOld lets storage's layers have been stored long ago.
func makeOld(t *testing.T, file string) {
	t.Helper()
	var layers []map[string]any
	if err := json.Unmarshal([]byte(readFile(t, file)), &layers); err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		l["created"] = time.Now().Add(-2 * time.Hour)
	}
	raw, err := json.Marshal(layers)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
}
