package integration

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestReadOnlyDisk: on a read-only disk calls that have to write fail, running containers keep running and can be
// stopped, and the daemon can be started. Everything works when the disk is writable again.
func TestReadOnlyDisk(t *testing.T) {
	t.Parallel()
	k := start(t)
	for _, c := range []struct {
		name  string
		dirs  []string
		tries map[string]func(l *life) error
	}{
		{"records", []string{k.Path("root", "pods"), k.Path("root", "network")}, map[string]func(l *life) error{
			"RunPodSandbox":   func(l *life) error { return l.k.newLife().run(l.k.ctx()) },
			"CreateContainer": func(l *life) error { return l.createAnother() },
		}},
		{"logs", []string{k.Path("logs")}, map[string]func(l *life) error{
			"CreateContainer": func(l *life) error { return l.createAnother() },
		}},
		{"images", []string{k.Path("root", "storage")}, map[string]func(l *life) error{
			"CreateContainer": func(l *life) error { return l.createAnother() },
			"PullImage": func(l *life) error {
				_, err := l.k.tryPull("docker.io/podd/native:latest", nil)
				return err
			},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := k.sub(t)
			l := k.newLife()
			l.upTo(3)
			writable := k.readOnly(c.dirs...)
			for what, try := range c.tries {
				k.refused(what, try(l), "read-only file system", codes.Internal, codes.FailedPrecondition, codes.Unavailable,
					codes.Unknown)
			}
			k.ok("exec", l.exec(k.ctx()))
			k.ok("kill podd", k.Kill9())
			err := k.Start(k.ctx())
			// Without an image store podd exits with the error, and tries again at the next start.
			if c.name == "images" {
				if err == nil || !strings.Contains(err.Error(), k.Path("root", "storage")+": read-only file system") {
					k.Fatalf("start with a read-only image store: error = %v, want its path and \"read-only file system\"", err)
				}
				writable()
				err = k.Start(k.ctx())
			}
			k.ok("start podd", err)
			if s := k.podStatus(l.podID); s.State != cri.PodSandboxState_SANDBOX_READY {
				k.Errorf("pod state after a restart = %v, want SANDBOX_READY", s.State)
			}
			k.ok("exec after a restart", l.exec(k.ctx()))
			k.stopContainer(l.containerID, 0)
			writable()
			for _, v := range verbs[4:] {
				k.ok(v.name, v.do(l, k.ctx()))
			}
			k.newLife().upTo(len(verbs))
		})
	}
}

// createAnother creates one more container in the pod.
func (l *life) createAnother() error {
	_, err := l.k.tryCreate(l.podID, l.k.containerConfig([]string{"true"}), l.pod)
	return err
}

// readOnly makes the directories read-only until the returned function is called or the test ends.
func (k *kubelet) readOnly(dirs ...string) (writable func()) {
	k.Helper()
	done := false
	writable = func() {
		for _, dir := range dirs {
			if !done {
				k.ok("make writable", unix.Unmount(dir, unix.MNT_DETACH))
			}
		}
		done = true
	}
	for _, dir := range dirs {
		k.ok("bind", unix.Mount(dir, dir, "", unix.MS_BIND|unix.MS_REC, ""))
		k.ok("make read-only", unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
	}
	k.Cleanup(writable)
	return writable
}

// TestFullLogDisk: a container keeps running while its log disk is full, and its output is logged again afterwards.
func TestFullLogDisk(t *testing.T) {
	t.Parallel()
	k := start(t)
	cfg := k.podConfig()
	k.ok("make the log directory", os.MkdirAll(cfg.LogDirectory, 0o755))
	// Too small for the output, 5 MB with the prefix of each line, but large enough for those lines that still wait in the
	// monitor's pipe when the log is truncated.
	k.ok("mount a small disk", unix.Mount("podd-test", cfg.LogDirectory, "tmpfs", 0, "size=1m"))
	t.Cleanup(func() { k.ok("unmount it", unix.Unmount(cfg.LogDirectory, unix.MNT_DETACH)) })
	pod := k.runPod(cfg, "")
	shm := k.shm(pod)
	id, ctr := k.runIn(pod, cfg, []string{"sh", "-c", "seq 100000; echo >/dev/shm/full; while [ ! -e /dev/shm/free ]; " +
		"do sleep 0.05; done; echo the end"})
	k.eventually("the container has printed more than the disk can hold", func() bool {
		_, err := os.Stat(shm + "/full")
		return err == nil
	})
	_, err := k.tryCreate(pod, k.containerConfig([]string{"true"}), cfg)
	if err != nil {
		t.Logf("another container on the full log disk: %v", err)
	}
	k.ok("truncate the log", os.Truncate(filepath.Join(cfg.LogDirectory, ctr.LogPath), 0))
	writeFile(t, shm+"/free", "")
	if s := k.exited(id); s.ExitCode != 0 {
		t.Errorf("exit code = %d, want 0: %v", s.ExitCode, s)
	}
	k.waitLog(cfg, ctr, "the end\n")
}

// TestPowerLoss simulates a power loss at random moments of a pull: unwritten data is lost, by the ioctl that the
// filesystem's own test suite uses. Afterwards every listed image has its full content, an image pulled before is still
// there, and the others can be pulled.
func TestPowerLoss(t *testing.T) {
	t.Parallel()
	k := start(t)
	const image = nginx
	disk := k.newDisk("")
	k.have(busybox)
	begin := time.Now()
	k.pull(image)
	took := time.Since(begin)
	want := map[string]string{busybox: k.content(busybox), image: k.content(image)}
	k.removeImage(image)
	rng := rand.New(rand.NewPCG(4, 2))
	for round := range soak(3, 40) {
		pulled := make(chan error, 1)
		go func() {
			_, err := k.tryPull(image, nil)
			pulled <- err
		}()
		var answer error
		after := time.Duration(rng.Int64N(int64(took)))
		if round == 0 { // right after the pull has succeeded
			answer, after = <-pulled, took
			pulled <- answer
		} else {
			time.Sleep(after)
		}
		disk.powerLoss(func() {})
		answer = <-pulled
		disk.mount()
		k.ok("start podd", k.Start(k.ctx()))
		there := k.image(image) != nil
		t.Logf("power lost %v after the start of a pull of %v, which returned %v: image listed: %v",
			after.Round(time.Millisecond), took.Round(time.Millisecond), answer, there)
		if answer == nil && !there {
			t.Error("image of a successful pull: listed = false, want true")
		}
		if k.image(busybox) == nil {
			t.Error("image pulled before: listed = false, want true")
		}
		for name, content := range want {
			if k.image(name) != nil && k.content(name) != content {
				t.Errorf("listed image %s: other content, want that of the first pull", name)
			}
		}
		if there {
			k.removeImage(image)
		}
	}
	k.pull(image)
	if k.content(image) != want[image] { // leftovers in the store must not affect a new pull
		t.Errorf("image %s pulled again: other content, want that of the first pull", image)
	}
}

// content returns a digest of all files of an image, computed in a container.
func (k *kubelet) content(image string) string {
	k.Helper()
	pod, cfg := k.pod()
	out, code := k.outputIn(pod, cfg, "find / -xdev -type f -size +0 | grep -v -e ^/etc/host -e ^/etc/resolv | sort | "+
		"xargs sha256sum | sha256sum", func(c *cri.ContainerConfig) {
		c.Image = &cri.ImageSpec{Image: image}
	})
	if code != 0 {
		k.Errorf("read image %s: exit code = %d, want 0: %s", image, code, out)
	}
	k.removePod(pod)
	return out
}

// disk is an ext4 filesystem with a journal, in a file, mounted on podd's root.
type disk struct {
	k          *kubelet
	file, root string
	options    string // of its mount
}

// newDisk makes one and restarts podd on it. At the test's end podd has its old root again. options are of the
// filesystem's mount, "" for none.
func (k *kubelet) newDisk(options string) *disk {
	k.Helper()
	d := &disk{k: k, file: k.Path("disk"), root: k.Path("root"), options: strings.TrimSuffix("loop,"+options, ",")}
	f, err := os.Create(d.file)
	k.ok("make the disk", errors.Join(err, f.Truncate(512<<20), f.Close()))
	k.ok("make a filesystem", shell("mkfs.ext4 -q -m 0 -O has_journal "+d.file))
	k.ok("stop podd", k.Stop())
	unmountBelow(k, d.root)
	if out, err := exec.Command("mount", "-o", d.options, d.file, d.root).CombinedOutput(); err != nil {
		k.ok("start podd", k.Start(k.ctx()))
		k.Skipf("no loop devices, which the simulated power loss needs: %v: %s", err, out)
	}
	k.Cleanup(func() { // runs before the daemon is closed
		if k.Running() {
			k.ok("remove pods", k.RemovePods(context.Background()))
			k.ok("stop podd", k.Stop())
		}
		unmountBelow(k, d.root)
		k.ok("start podd", k.Start(context.Background()))
	})
	k.ok("make it searchable", os.Chmod(d.root, 0o711))
	k.ok("start podd", k.Start(k.ctx()))
	return d
}

func (d *disk) mount() {
	d.k.Helper()
	d.k.ok("mount the disk", shell("mount -o "+d.options+" "+d.file+" "+d.root))
}

// powerLoss kills podd and discards what is not on the disk yet. end ends what else uses the disk.
func (d *disk) powerLoss(end func()) {
	d.k.Helper()
	const ext4Shutdown, noLogFlush = 0x8004587d, 2 // EXT4_IOC_SHUTDOWN, EXT4_GOING_FLAGS_NOLOGFLUSH
	// podd is killed first: after a real power loss no process sees I/O errors, on which the storage library panics.
	d.k.ok("kill podd", d.k.Kill9())
	f, err := os.Open(d.root)
	d.k.ok("open the disk", err)
	err = unix.IoctlSetPointerInt(int(f.Fd()), ext4Shutdown, noLogFlush)
	d.k.ok("shut the filesystem down", errors.Join(err, f.Close()))
	end()
	// The process of a pull dies with podd, but a moment later. Until then its mount namespace keeps the filesystem and
	// the loop device, and another mount would be of the dead filesystem.
	d.k.eventually("the disk is not in use", func() bool {
		if err := unix.Unmount(d.root, 0); errors.Is(err, unix.EBUSY) {
			return false
		}
		devices, err := exec.Command("losetup", "--associated", d.file).Output()
		return err == nil && len(devices) == 0
	})
}
