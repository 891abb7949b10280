package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/daemon"
)

// stuckFor is the deadline of everything that gets stuck. What is not stuck must be done long before.
const stuckFor = 20 * time.Second

// stuck is a call that waits for something that does not answer.
type stuck struct {
	name string
	call func() error
	// words must be in the error: the stage, and what was waited for.
	words []string
	// within is how long the call may take, deadlines of several stages together.
	within time.Duration
	// release brings what was waited for back; then again must succeed.
	release, again func() error

	err  error
	took time.Duration
}

// TestStuckDependencies has a CNI plugin, the runtime, the monitor, a volume and a registry hang, and a container sleep
// uninterruptibly, all at once. Whoever waits for one of them is told so at the deadline and with the stage, and gets
// what he wanted once it is back. Nobody else notices.
func TestStuckDependencies(t *testing.T) {
	t.Parallel()
	d := stuckFor.String()
	k := startWith(t, daemon.Options{Gated: true, Set: []string{
		fmt.Sprintf("network.add_timeout=%q", d), fmt.Sprintf("network.del_timeout=%q", d),
		fmt.Sprintf("runtime.create_timeout=%q", d), fmt.Sprintf("runtime.start_timeout=%q", d),
		fmt.Sprintf("runtime.undo_timeout=%q", d), `runtime.kill_timeout="5s"`, `image.pull_progress_timeout="15s"`,
	}})
	k.have(busybox)
	cases := []*stuck{k.stuckAdd(), k.stuckDel(), k.stuckMonitor(), k.stuckStart(), k.stuckDelete(), k.deadVolume(),
		k.trickle(), k.uninterruptible()}

	before := k.pace()
	var calls sync.WaitGroup
	for _, s := range cases {
		calls.Go(func() {
			begin := time.Now()
			s.err = s.call()
			s.took = time.Since(begin)
		})
	}
	for _, held := range []string{"bridge-ADD", "bridge-DEL", "conmon-create", "runc-start", "runc-delete"} {
		k.eventually(held+" is held up", func() bool { return k.Gates.Holds(held) })
	}
	during := k.pace()
	t.Logf("answers of List, Status and the like, the slowest of a hundred: %v before, %v while eight things are stuck",
		before.answer, during.answer)
	t.Logf("the life of another pod: %v before, %v while eight things are stuck", before.life, during.life)
	if during.answer > 10*before.answer+2*time.Second {
		t.Errorf("answers take %v, %v before anything was stuck", during.answer, before.answer)
	}
	if during.life > 4*before.life+10*time.Second {
		t.Errorf("the life of another pod takes %v, %v before anything was stuck", during.life, before.life)
	}
	calls.Wait()
	for _, s := range cases {
		t.Run(s.name, func(t *testing.T) { s.clears(k.withT(t)) })
	}
}

// clears looks at what the stuck call was told, and does it again when what was stuck is not any more.
func (s *stuck) clears(k *kubelet) {
	k.Logf("after %v: %v", s.took.Round(time.Millisecond), s.err)
	for _, words := range s.words {
		// unknown: what the kubelet has its own words for
		k.refused(s.name, s.err, words, codes.DeadlineExceeded, codes.Unknown)
	}
	if s.took > s.within+stuckFor {
		k.Errorf("it took %v to tell", s.took)
	}
	k.ok("bring it back", s.release())
	k.ok("the same again", s.again())
}

// pace is how fast the daemon is for those who have nothing to do with what is stuck.
type pace struct{ answer, life time.Duration }

func (k *kubelet) pace() (p pace) {
	k.Helper()
	var answers []time.Duration
	for range 25 {
		for _, ask := range []func(context.Context) error{
			func(ctx context.Context) error {
				_, err := k.Runtime.Status(ctx, &cri.StatusRequest{Verbose: true})
				return err
			},
			func(ctx context.Context) error {
				_, err := k.Runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
				return err
			},
			func(ctx context.Context) error {
				_, err := k.Runtime.ListContainers(ctx, &cri.ListContainersRequest{})
				return err
			},
			func(ctx context.Context) error {
				_, err := k.Images.ListImages(ctx, &cri.ListImagesRequest{})
				return err
			},
		} {
			begin := time.Now()
			k.ok("ask", ask(k.ctx()))
			answers = append(answers, time.Since(begin))
		}
	}
	slices.Sort(answers)
	p.answer = answers[len(answers)-2] // the 99th of a hundred
	begin := time.Now()
	k.newLife().upTo(len(verbs))
	p.life = time.Since(begin)
	return p
}

// stuckAdd is a pod whose CNI plugin hangs.
func (k *kubelet) stuckAdd() *stuck {
	l := k.newLife()
	k.ok("hold", k.Gates.Hold("bridge-ADD", "K8S_POD_NAME="+l.pod.Metadata.Name+";"))
	call := func() error { return l.run(k.ctx()) }
	return &stuck{name: "CNI ADD", call: call, words: []string{"network", "bridge"}, within: stuckFor,
		release: func() error { return k.Gates.Release("bridge-ADD") }, again: call}
}

// stuckDel is a pod whose CNI plugin hangs when it is stopped.
func (k *kubelet) stuckDel() *stuck {
	l := k.newLife()
	l.upTo(1)
	k.ok("hold", k.Gates.Hold("bridge-DEL", "K8S_POD_NAME="+l.pod.Metadata.Name+";"))
	call := func() error { return l.stopPod(k.ctx()) }
	return &stuck{name: "CNI DEL", call: call, words: []string{"tear down network", "bridge"}, within: stuckFor,
		release: func() error { return k.Gates.Release("bridge-DEL") }, again: call}
}

// stuckMonitor is a container whose monitor hangs before it has called the runtime.
func (k *kubelet) stuckMonitor() *stuck {
	l := k.newLife()
	l.upTo(1)
	k.ok("hold", k.Gates.Hold("conmon-create", l.container.LogPath))
	call := func() error { return l.create(k.ctx()) }
	return &stuck{name: "create", call: call, words: []string{"create", "longer than"}, within: stuckFor,
		release: func() error { return k.Gates.Release("conmon-create") }, again: call}
}

// stuckStart is a container that the runtime does not start. The kubelet makes another one then.
func (k *kubelet) stuckStart() *stuck {
	l := k.newLife()
	l.upTo(2)
	k.ok("hold", k.Gates.Hold("runc-start", l.containerID))
	return &stuck{name: "start", call: func() error { return l.start(k.ctx()) }, words: []string{"start", "longer than"},
		within:  stuckFor,
		release: func() error { return k.Gates.Release("runc-start") },
		again: func() error {
			l.container.Metadata.Attempt++
			if err := l.create(k.ctx()); err != nil {
				return err
			}
			return l.start(k.ctx())
		}}
}

// stuckDelete is a container that the runtime does not delete.
func (k *kubelet) stuckDelete() *stuck {
	l := k.newLife()
	l.upTo(3)
	k.ok("hold", k.Gates.Hold("runc-delete", l.containerID))
	call := func() error { return l.end(k.ctx()) }
	return &stuck{name: "delete", call: call, words: []string{"delete"}, within: 3 * stuckFor,
		release: func() error { return k.Gates.Release("runc-delete") }, again: call}
}

// deadVolume is a container with a volume that answers nothing.
func (k *kubelet) deadVolume() *stuck {
	l := k.newLife()
	l.upTo(1)
	dir := k.Path("volumes", "dead")
	volume := mountFUSE(k, dir, true)
	l.container.Mounts = []*cri.Mount{{HostPath: dir, ContainerPath: "/data"}}
	call := func() error { return l.create(k.ctx()) }
	return &stuck{name: "volume", call: call, words: []string{"volumes/dead"}, within: stuckFor,
		release: func() error { volume.end(); return nil }, again: call}
}

// trickle is an image whose registry sends next to nothing.
func (k *kubelet) trickle() *stuck {
	const image = "registry.k8s.io/trickle/podd/layered:latest"
	call := func() error { _, err := k.tryPull(image, nil); return err }
	return &stuck{name: "registry", call: call, words: []string{"RegistryUnavailable", "too little"}, within: stuckFor,
		release: func() error { k.registry.Release(); return nil }, again: call}
}

// uninterruptible is a container with a process that no signal ends.
func (k *kubelet) uninterruptible() *stuck {
	l := k.newLife()
	volume := mountFUSE(k, k.Path("volumes", "sleepy"), false)
	l.container.Mounts = []*cri.Mount{{HostPath: volume.dir, ContainerPath: "/data"}}
	l.container.Command = []string{"cat", "/data/file"}
	l.upTo(3)
	pid := stateOf(k, k, l.containerID).Init.Pid
	k.eventually("the container sleeps uninterruptibly", func() bool {
		wchan, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "wchan"))
		return err == nil && strings.Contains(string(wchan), "request_wait_answer")
	})
	call := func() error { return l.end(k.ctx()) }
	return &stuck{name: "uninterruptible sleep", call: call, words: []string{"request_wait_answer"}, within: stuckFor,
		release: func() error { volume.end(); return nil }, again: call}
}
