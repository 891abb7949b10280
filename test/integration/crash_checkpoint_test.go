package integration

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/daemon"
)

// saving is a life with checkpoints: of one container, of its pod, and the restore of that as another pod.
type saving struct {
	*counting
	dir      string // for the checkpoint of the pod
	restored *counting
}

// savingVerb is a call in that life. Calls can be repeated after a crash.
type savingVerb struct {
	name string
	do   func(s *saving) error
}

func savingVerbs() []savingVerb {
	return []savingVerb{
		{"CheckpointContainer", func(s *saving) error {
			return s.saveFirst(filepath.Join(s.snapshotDir(), "archive.tar"))
		}},
		{"CheckpointPod", func(s *saving) error {
			s.dir = s.snapshotDir()
			return s.checkpoint(s.dir)
		}},
		{"RestorePod", func(s *saving) error {
			r := s.restoreRequest(s.dir)
			response, err := s.Runtime.RestorePod(s.ctx(), r)
			if err != nil {
				return err
			}
			s.restored = &counting{kubelet: s.kubelet, pod: response.PodSandboxId, podConfig: r.Config,
				configs: r.ContainerConfigs, containers: []string{response.RestoredContainers[0].ContainerId}}
			return nil
		}},
		{"StartContainer", func(s *saving) error {
			ctx, cancel := context.WithTimeout(s.ctx(), time.Minute)
			defer cancel()
			_, err := s.Runtime.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: s.restored.containers[0]})
			return err
		}},
	}
}

// TestCrashInCheckpoints is TestCrashAtEveryCall for checkpoints, with runc and CRIU: the daemon is killed before and
// after every call of another program. The saved container runs on, also before the next daemon starts. So does a
// restored one if the program was started; else it runs or has exited. The call succeeds when it is repeated. Only a
// soak run has the points before and late.
func TestCrashInCheckpoints(t *testing.T) {
	t.Parallel()
	repo, err := daemon.Repository()
	if err != nil {
		t.Fatal(err)
	}
	k := startWith(t, daemon.Options{Gated: true, Set: []string{
		fmt.Sprintf("runtime.criu = %q", filepath.Join(repo, "bin", "criu")),
	}})
	s := &saving{counting: k.one("touch /tmp/ready; " + countForever)}
	for i, v := range savingVerbs() {
		k.eventually("podd has removed what a crash left half made", k.nothingHalfMade)
		k.ok("empty the diary", k.Gates.Forget())
		k.ok(v.name, v.do(s))
		calls, err := k.Gates.Diary()
		k.ok("read the diary", err)
		seen := map[string]int{}
		for _, call := range calls {
			seen[call]++
			if strings.HasSuffix(call, "-ADD") {
				continue // as in TestCrashAtEveryCall
			}
			for _, p := range soak([]daemon.Point{daemon.After}, []daemon.Point{daemon.Before, daemon.After, daemon.Late}) {
				t.Run(fmt.Sprintf("%s %s %s %d", v.name, p, call, seen[call]), func(t *testing.T) {
					mine := *k // without a leak check of its own: the saved pod has other processes all the time
					mine.TB = t
					s.crash(&mine, i, crash{call: call, nth: seen[call], point: p})
				})
			}
		}
	}
}

// nothingHalfMade reports whether each pod that has files is listed, and nothing else is left. A new podd removes the
// rest while it serves, by calls that are not the next verb's.
func (k *kubelet) nothingHalfMade() bool {
	files, err := filepath.Glob(k.Path("root", "pods", "*"))
	_, _, left := k.podd("check")
	return err == nil && len(files) == len(k.pods(nil)) && left == 0
}

// crash kills the daemon in a call, and repeats it.
func (s *saving) crash(k *kubelet, verb int, c crash) {
	mine := &saving{counting: s.counting, dir: s.dir}
	counts := *s.counting
	counts.kubelet, mine.counting = k, &counts
	if savingVerbs()[verb].name == "StartContainer" {
		k.ok("RestorePod", savingVerbs()[verb-1].do(mine))
	}
	k.ok("arm", k.Gates.Arm(c.call, c.nth, c.point))
	_ = savingVerbs()[verb].do(mine)
	k.eventually("the daemon is dead", func() bool { return !k.Running() })
	if fired, err := k.Gates.Disarm(); err != nil || !fired {
		k.Fatalf("Disarm() = %v, %v, want the daemon killed by the gate", fired, err)
	}
	mine.runs() // nothing of podd is needed for that
	alone := mine.restored != nil && c.point == daemon.After
	if alone { // conmon ends the restore
		mine.restored.runs()
	}
	k.ok("start podd", k.Start(k.ctx()))
	mine.runs()
	mine.noLocks()
	k.nothingStaged()
	if r := mine.restored; r != nil {
		mine.afterStart(k, r, alone)
		return
	}
	k.ok("the call after the crash", savingVerbs()[verb].do(mine))
	mine.runs()
}

// afterStart checks a restored container whose start the daemon was killed in. One that ran before the next daemon runs
// on.
func (s *saving) afterStart(k *kubelet, r *counting, alone bool) {
	r.kubelet = k
	<-k.startLater(r.containers[0]) // waits until podd knows its state
	switch state := k.container(r.containers[0]).State; state {
	case cri.ContainerState_CONTAINER_RUNNING:
		r.runs()
	case cri.ContainerState_CONTAINER_EXITED:
		if alone {
			k.Error("restored container has exited after the crash, want it to run on")
		}
	default:
		k.Errorf("restored container after the crash = %v, want it to run, or to have exited", state)
	}
	k.removePod(r.pod)
}
