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
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/daemon"
	"github.com/podd-project/podd/test/fuse"
)

// stuckFor is the deadline of the calls that hang. Others must return long before.
const stuckFor = 20 * time.Second

// stuck is a call that waits for something that hangs.
type stuck struct {
	name string
	call func() error
	// words must be in the error: the stage, and what hangs.
	words []string
	// within is the sum of the deadlines of the call's stages.
	within time.Duration
	// release ends the hang; then again must succeed.
	release, again func() error

	err  error
	took time.Duration
}

// TestStuckDependencies makes a CNI plugin, the runtime, the monitor, a volume and a registry hang, and a container
// sleep uninterruptibly, all at once. Each call that waits for one of them fails at its deadline with the stage in the
// error, and succeeds when the hang has ended. Other calls are not delayed.
func TestStuckDependencies(t *testing.T) {
	t.Parallel()
	d := stuckFor.String()
	k := startWith(t, daemon.Options{Gated: true, Set: []string{
		fmt.Sprintf("network.add_timeout=%q", d), fmt.Sprintf("network.del_timeout=%q", d),
		fmt.Sprintf("runtime.create_timeout=%q", d), `runtime.kill_timeout="5s"`, `image.pull_progress_timeout="15s"`,
		hooksOfRuntime(t),
	}})
	k.have(busybox)
	cases := []*stuck{k.stuckAdd(), k.stuckDel(), k.stuckMonitor(), k.stuckStart(), k.stuckDelete(), k.deadVolume(),
		k.trickle(), k.uninterruptible()}

	before := k.latency()
	var calls sync.WaitGroup
	for _, s := range cases {
		calls.Go(func() {
			begin := time.Now()
			s.err = s.call()
			s.took = time.Since(begin)
		})
	}
	for _, held := range []string{"bridge-ADD", "bridge-DEL", "conmon-create", "runc-start", "runc-delete"} {
		k.eventually(held+" hangs", func() bool { return k.Gates.Holds(held) })
	}
	during := k.latency()
	t.Logf("99th percentile of List and Status calls: %v before, %v while eight calls hang", before.call, during.call)
	t.Logf("life of another pod: %v before, %v while eight calls hang", before.life, during.life)
	if limit := 10*before.call + 2*time.Second; during.call > limit {
		t.Errorf("99th percentile of List and Status calls while others hang = %v, want at most %v", during.call, limit)
	}
	if limit := 4*before.life + 10*time.Second; during.life > limit {
		t.Errorf("life of another pod while others hang = %v, want at most %v", during.life, limit)
	}
	calls.Wait()
	for _, s := range cases {
		t.Run(s.name, func(t *testing.T) { s.checkAndRetry(k.withT(t)) })
	}
}

// checkAndRetry checks the error and the duration of the call, ends the hang, and repeats the call.
func (s *stuck) checkAndRetry(k *kubelet) {
	k.Logf("after %v: %v", s.took.Round(time.Millisecond), s.err)
	for _, words := range s.words {
		// Unknown is for errors that the kubelet reports by its own texts
		k.refused(s.name, s.err, words, codes.DeadlineExceeded, codes.Unknown)
	}
	if s.took > s.within+stuckFor {
		k.Errorf("%s took %v, want at most %v", s.name, s.took, s.within+stuckFor)
	}
	k.ok("end the hang", s.release())
	k.ok("repeat the call", s.again())
}

// latency has the durations of calls that do not depend on the hanging ones.
type latency struct {
	call time.Duration // 99th percentile of List and Status
	life time.Duration // all calls of one pod's life
}

func (k *kubelet) latency() (p latency) {
	k.Helper()
	var calls []time.Duration
	for range 25 {
		for _, call := range []func(context.Context) error{
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
			k.ok("List or Status", call(k.ctx()))
			calls = append(calls, time.Since(begin))
		}
	}
	slices.Sort(calls)
	p.call = calls[len(calls)-2] // the 99th of 100
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

// stuckMonitor is a container whose monitor hangs before it calls the runtime.
func (k *kubelet) stuckMonitor() *stuck {
	l := k.newLife()
	l.upTo(1)
	k.ok("hold", k.Gates.Hold("conmon-create", "--name "+l.container.Metadata.Name+" --"))
	call := func() error { return l.create(k.ctx()) }
	return &stuck{name: "create", call: call, words: []string{"create", "longer than"}, within: stuckFor,
		release: func() error { return k.Gates.Release("conmon-create") }, again: call}
}

// stuckStart is a container that the runtime does not start. The retry creates another one, as the kubelet does.
func (k *kubelet) stuckStart() *stuck {
	l := k.newLife()
	l.addHooks()
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
	l.addHooks()
	l.upTo(3)
	k.ok("hold", k.Gates.Hold("runc-delete", l.containerID))
	call := func() error { return l.stopAndRemove(k.ctx()) }
	return &stuck{name: "delete", call: call, words: []string{"delete"}, within: 3 * stuckFor,
		release: func() error { return k.Gates.Release("runc-delete") }, again: call}
}

// deadVolume is a container with a volume that answers no request.
func (k *kubelet) deadVolume() *stuck {
	l := k.newLife()
	l.upTo(1)
	dir := k.Path("volumes", "dead")
	volume := fuse.Mount(k, dir)
	volume.Die()
	l.container.Mounts = []*cri.Mount{{HostPath: dir, ContainerPath: "/data"}}
	call := func() error { return l.create(k.ctx()) }
	again := func() (err error) {
		k.eventually("the earlier lookup has returned", func() bool { // until then the call is refused at once
			err = call()
			return status.Code(err) != codes.Unavailable
		})
		return err
	}
	return &stuck{name: "volume", call: call, words: []string{"volumes/dead"}, within: stuckFor,
		release: func() error { volume.Disconnect(); return nil }, again: again}
}

// trickle is an image whose registry sends a few bytes a second.
func (k *kubelet) trickle() *stuck {
	const image = "registry.k8s.io/trickle/podd/layered:latest"
	call := func() error { _, err := k.tryPull(image, nil); return err }
	return &stuck{name: "registry", call: call, words: []string{"RegistryUnavailable", "too little"},
		within:  2 * stuckFor, // a mirror is asked first
		release: func() error { k.registry.Release(); return nil }, again: call}
}

// uninterruptible is a container with a process in uninterruptible sleep, which no signal ends.
func (k *kubelet) uninterruptible() *stuck {
	l := k.newLife()
	dir := k.Path("volumes", "sleepy")
	volume := fuse.Mount(k, dir)
	l.container.Mounts = []*cri.Mount{{HostPath: dir, ContainerPath: "/data"}}
	l.container.Command = []string{"cat", "/data/file"}
	l.upTo(3)
	pid := stateOf(k, k, l.containerID).Init.Pid
	k.eventually("the container sleeps uninterruptibly", func() bool {
		wchan, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "wchan"))
		return err == nil && strings.Contains(string(wchan), "request_wait_answer")
	})
	call := func() error { return l.stopAndRemove(k.ctx()) }
	return &stuck{name: "uninterruptible sleep", call: call, words: []string{"request_wait_answer"}, within: stuckFor,
		release: func() error { volume.Disconnect(); return nil }, again: call}
}
