package checks

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestCheckpoint: with runc a container is saved and its pod is restored as another one, on cgroup v2, with the systemd
// driver and AppArmor. crun is refused.
func TestCheckpoint(t *testing.T) {
	t.Run("runc", func(t *testing.T) { checkpointAndRestore(newSaved(t, "runc")) })
	t.Run("crun", func(t *testing.T) {
		s := newSaved(t, "crun")
		for call, err := range map[string]error{"CheckpointContainer": s.archive(), "CheckpointPod": s.checkpoint()} {
			if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "needs runc") {
				t.Errorf("%s = %v, want %v", call, err, codes.Unimplemented)
			}
		}
		s.counts(s.id)
	})
}

// saved is a pod with a container that counts, and the directory of its checkpoint.
type saved struct {
	*kubelet
	id     string
	config *cri.ContainerConfig
	dir    string
}

func newSaved(t *testing.T, handler string) *saved {
	t.Helper()
	s := &saved{kubelet: newKubelet(t), dir: t.TempDir()}
	s.handler = handler
	s.runPod()
	const command = "i=0; while true; do i=$((i+1)); echo $i; echo $i > /tmp/n; sleep 0.2; done"
	s.id = s.start(command, func(c *cri.ContainerConfig) { s.config = c })
	s.counts(s.id)
	s.ok("chmod", os.Chmod(s.dir, 0o700))
	return s
}

// archive is CheckpointContainer. It keeps no archive.
func (s *saved) archive() error {
	ctx, cancel := context.WithTimeout(s.Context(), 2*time.Minute)
	defer cancel()
	path := filepath.Join(s.dir, "archive.tar")
	_, err := s.runtime.CheckpointContainer(ctx, &cri.CheckpointContainerRequest{ContainerId: s.id, Location: path})
	if err == nil {
		err = os.Remove(path)
	}
	return err
}

// checkpoint is CheckpointPod.
func (s *saved) checkpoint() error {
	ctx, cancel := context.WithTimeout(s.Context(), 2*time.Minute)
	defer cancel()
	_, err := s.runtime.CheckpointPod(ctx,
		&cri.CheckpointPodRequest{PodSandboxId: s.podID, OutputPath: s.dir, ContainerIds: []string{s.id}})
	return err
}

func checkpointAndRestore(s *saved) {
	s.ok("CheckpointContainer", s.archive())
	s.counts(s.id)
	before := s.count(s.id)
	var err error
	s.eventually("podd knows that CRIU works, which a slow machine does not answer at first", func() bool {
		err = s.checkpoint()
		return status.Code(err) != codes.Unimplemented
	})
	s.ok("CheckpointPod", err)
	s.counts(s.id)
	profile, cgroup := s.exec(s.id, "cat /proc/1/attr/current"), s.cgroup(s.id)
	s.removePod()

	restored := s.restore()
	s.counts(restored)
	if n := s.count(restored); n < before {
		s.Errorf("count of the restored container = %d, want at least %d", n, before)
	}
	if got := s.exec(restored, "cat /proc/1/attr/current"); got != profile || !strings.Contains(profile, "enforce") {
		s.Errorf("profile of the restored process = %q, of the saved one %q, want the same", got, profile)
	}
	if got := s.cgroup(restored); got == cgroup || filepath.Dir(got) != filepath.Dir(cgroup) {
		s.Errorf("cgroup of the restored process = %s, want another scope beside %s", got, cgroup)
	}
}

// restore is RestorePod in the place of the pod, and the start of its container, whose id it returns.
func (s *saved) restore() string {
	s.Helper()
	s.podID = ""
	r, err := s.runtime.RestorePod(s.Context(), &cri.RestorePodRequest{
		CheckpointPath: s.dir, Config: s.pod, ContainerConfigs: []*cri.ContainerConfig{s.config}, RuntimeHandler: s.handler,
	})
	s.ok("RestorePod", err)
	s.podID = r.PodSandboxId
	id := r.RestoredContainers[0].ContainerId
	_, err = s.runtime.StartContainer(s.Context(), &cri.StartContainerRequest{ContainerId: id})
	s.ok("StartContainer", err)
	return id
}

func (k *kubelet) count(id string) int {
	k.Helper()
	n, _ := strconv.Atoi(k.exec(id, "cat /tmp/n"))
	return n
}

// counts waits until the container counts on.
func (k *kubelet) counts(id string) {
	k.Helper()
	before := k.count(id)
	k.eventually("the container counts on", func() bool { return k.count(id) > before })
}
