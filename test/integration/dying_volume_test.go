package integration

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// volume is an ext4 filesystem whose server can die: then writes block, and a process that writes cannot be killed.
type volume struct {
	k   *kubelet
	dir string
}

func (k *kubelet) newVolume() volume {
	k.Helper()
	v, file := volume{k, k.snapshotDir()}, filepath.Join(k.snapshotDir(), "disk")
	f, err := os.Create(file)
	k.ok("make the disk", errors.Join(err, f.Truncate(128<<20), f.Close()))
	k.ok("make a filesystem", shell("mkfs.ext4 -q -m 0 "+file))
	if err := shell("mount -o loop " + file + " " + v.dir); err != nil {
		k.Skipf("no loop devices, which a volume that dies needs: %v", err)
	}
	k.Cleanup(func() { k.ok("unmount the volume", shell("umount "+v.dir)) })
	return v
}

// die has the volume block writes until answer is called: after 20 s or at the end of the test at the latest, because
// nothing that writes to it could be ended. Late is the timer of the former.
func (v volume) die(t *testing.T) (late *time.Timer, err error) {
	late = time.AfterFunc(20*time.Second, func() { _ = v.answer() })
	t.Cleanup(func() { late.Stop(); _ = v.answer() })
	return late, shell("fsfreeze --freeze " + v.dir)
}

// dieWhileSaving has the volume die when CRIU saves c to dir on it, and returns the channel with the result of save. If
// all was written before the volume died, as on a busy machine, it tries again.
func (v volume) dieWhileSaving(t *testing.T, dir string, c *counting, save func() error) <-chan error {
	t.Helper()
	for attempt := 1; ; attempt++ {
		saved := make(chan error, 1)
		go func() { saved <- save() }()
		c.eventually("CRIU runs", func() bool { return len(criuOf(c.containers[0])) > 0 || len(saved) > 0 })
		late, err := v.die(t)
		c.ok("have the volume die", err)
		if len(saved) == 0 || attempt == 3 {
			return saved
		}
		late.Stop() // it would end the next attempt
		c.ok("have the volume answer", v.answer())
		c.ok("save before the volume died", <-saved)
		c.ok("empty the directory", errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)))
	}
}

func (k *kubelet) updateContainer(id string) {
	k.Helper()
	_, err := k.Runtime.UpdateContainerResources(k.ctx(), &cri.UpdateContainerResourcesRequest{
		ContainerId: id, Linux: &cri.LinuxContainerResources{CpuShares: 100}})
	k.ok("UpdateContainerResources", err)
}

func (v volume) answer() error { return shell("fsfreeze --unfreeze " + v.dir) }

// dumpToDyingVolume: the volume for a checkpoint blocks every write while the containers are being saved. They run on,
// and can be stopped and removed meanwhile. When the volume answers, the checkpoint of a pod is complete: it was saved
// before. That of a container was ended by the stop. Nothing else is left.
func dumpToDyingVolume(t *testing.T, k *kubelet) {
	v := k.newVolume()
	for name, save := range map[string]func(c *counting, dir string) error{
		"CheckpointPod":       func(c *counting, dir string) error { return c.checkpoint(dir) },
		"CheckpointContainer": func(c *counting, dir string) error { return c.saveFirst(dir + "/archive.tar") },
	} {
		t.Run(name, func(t *testing.T) {
			k := k.sub(t)
			c, dir := k.counting("runc"), filepath.Join(v.dir, name)
			k.ok("make directory", os.Mkdir(dir, 0o700))
			saved := v.dieWhileSaving(t, dir, c, func() error { return save(c, dir) })
			began := time.Now()
			c.runs()
			k.updateContainer(c.containers[0]) // waits until the checkpoint has given it free
			k.stopContainer(c.containers[0], 0)
			k.removePod(c.pod)
			if took := time.Since(began); took > 15*time.Second {
				k.Errorf("the containers ran and were removed after %v, want them not to wait for the volume", took)
			}
			if len(saved) > 0 {
				k.Error("the call has returned, want it to wait for the volume")
			}
			k.ok("have the volume answer", v.answer())
			if err := <-saved; name == "CheckpointPod" {
				k.ok("CheckpointPod of a pod that was removed when it was saved", err)
				r := c.restore(dir)
				r.startAll()
				r.runs()
			} else if err == nil {
				k.Error("the checkpoint of a container that was stopped = nil, want an error")
			} else {
				k.isEmpty(dir)
			}
			k.nothingStaged()
		})
	}
}
