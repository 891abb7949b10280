package integration

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/daemon"
)

// Numbers and periods of TestEndurance.
const (
	standingPods = 10
	churners     = 4
	probePeriod  = time.Second
	relistPeriod = time.Second
	statsPeriod  = 10 * time.Second
	pullPeriod   = 5 * time.Second
	killPeriod   = 20 * time.Second // on average
)

// churnedImage is pulled and removed; no pod uses it.
const churnedImage = "registry.k8s.io/e2e-test-images/nonewprivs:1.3"

// endurance is a podd that works for long.
type endurance struct {
	*kubelet
	standing []string // containers
	lives    atomic.Int64
	probes   atomic.Int64
	pulls    atomic.Int64
	kills    atomic.Int64
	// killed is true while podd is killed from time to time: then calls may fail.
	killed bool
}

// TestEndurance (make endurance) works for hours: pods come and go, standing pods are probed by exec, an image is
// pulled and removed, a kubelet lists and takes statistics. In the first half podd runs all the time: its memory,
// descriptors and goroutines end where they began. In the second half it is killed again and again. After both the
// machine has the mounts and cgroups of the standing pods and no more, and these pods have run all the time.
func TestEndurance(t *testing.T) {
	if os.Getenv("ENDURANCE") == "" {
		t.Skip("takes long; make endurance LENGTH=2h")
	}
	length, err := time.ParseDuration(os.Getenv("ENDURANCE"))
	if err != nil {
		t.Fatalf("ENDURANCE: %v", err)
	}
	e := &endurance{kubelet: start(t)}
	repo, err := daemon.Repository()
	e.ok("repository", err)
	e.Use(filepath.Join(repo, "bin", "podd")) // without the race detector, whose memory is another matter
	e.ok("start podd", e.Restart(e.ctx(), e.Stop))
	for range standingPods {
		pod, ctr := e.sleeper()
		e.keep, e.standing = append(e.keep, pod), append(e.standing, ctr)
	}
	t.Cleanup(func() { e.keep = nil }) // before the leak check
	began := e.startTimes()

	e.work(length/20, false) // caches fill
	first := e.rest()
	e.work(length/2-length/20, false)
	second := e.rest()
	e.work(length/2, true)
	third := e.rest()

	if second.memory > first.memory*5/4+4 || second.files > first.files+2 || second.goroutines > first.goroutines+2 {
		e.Errorf("podd has grown from %v to %v:\n%s", first, second, second.dump)
	}
	for _, r := range []resting{second, third} {
		if !slices.Equal(r.mounts, first.mounts) {
			e.Errorf("mounts: %s, want %s", strings.Join(r.mounts, "\n"), strings.Join(first.mounts, "\n"))
		}
		if !slices.Equal(r.cgroups, first.cgroups) {
			e.Errorf("cgroups: %s, want %s", strings.Join(r.cgroups, "\n"), strings.Join(first.cgroups, "\n"))
		}
	}
	if got := e.startTimes(); !maps.Equal(got, began) {
		e.Errorf("standing containers, started at: %v, want %v", got, began)
	}
}

// resting is what podd and its pods use while nothing happens.
type resting struct {
	daemonUsage
	memory          int // resident, in MiB
	mounts, cgroups []string
}

func (r resting) String() string {
	return fmt.Sprintf("%d MiB, %d descriptors, %d goroutines, %d mounts, %d cgroups", r.memory, r.files, r.goroutines,
		len(r.mounts), len(r.cgroups))
}

// rest removes what is left of the churn and measures.
func (e *endurance) rest() (r resting) {
	e.Helper()
	e.ok("remove pods", e.RemovePods(e.ctx(), e.keep...))
	r.daemonUsage = e.usageAtRest()
	status, err := os.ReadFile("/proc/" + strconv.Itoa(e.Pid()) + "/status")
	e.ok("status of the daemon", err)
	m := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(status)
	kib, err := strconv.Atoi(string(m[1]))
	e.ok("VmRSS", err)
	r.memory = kib >> 10
	r.mounts, r.cgroups = e.mounts(), e.cgroups()
	e.Logf("at rest: %v; so far %d pods, %d probes, %d pulls, podd killed %d times", r, e.lives.Load(), e.probes.Load(),
		e.pulls.Load(), e.kills.Load())
	return r
}

// mounts returns the mount points below podd's directories, sorted.
func (k *kubelet) mounts() (points []string) {
	k.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	k.ok("mounts", err)
	for line := range strings.Lines(string(table)) {
		if point := strings.Fields(line)[4]; strings.HasPrefix(point, k.Dir+"/") {
			points = append(points, point)
		}
	}
	slices.Sort(points)
	return points
}

// cgroups returns the cgroups below the parent of the pods in all hierarchies, sorted.
func (k *kubelet) cgroups() (found []string) {
	k.Helper()
	for _, pattern := range []string{"/sys/fs/cgroup" + k.CgroupParent, "/sys/fs/cgroup/*" + k.CgroupParent} {
		dirs, err := filepath.Glob(pattern)
		k.ok("cgroups", err)
		for _, dir := range dirs {
			k.ok("cgroups", filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				if errors.Is(err, fs.ErrNotExist) {
					return nil // podd has removed it since
				}
				if d != nil && d.IsDir() {
					found = append(found, path)
				}
				return err
			}))
		}
	}
	slices.Sort(found)
	return found
}

// startTimes returns when each standing container that runs was started.
func (e *endurance) startTimes() map[string]int64 {
	e.Helper()
	times := map[string]int64{}
	for _, id := range e.standing {
		if s := e.container(id); s.GetState() == cri.ContainerState_CONTAINER_RUNNING {
			times[id] = s.GetStartedAt()
		}
	}
	return times
}

// work does everything at once for some time. Calls are not cut off at its end.
func (e *endurance) work(length time.Duration, kill bool) {
	e.Helper()
	e.killed = kill
	ctx, cancel := context.WithTimeout(e.ctx(), length)
	defer cancel()
	var all sync.WaitGroup
	for range churners {
		all.Go(func() {
			for ctx.Err() == nil {
				e.note("life of a pod", e.live(e.ctx()))
			}
		})
	}
	for _, id := range e.standing {
		all.Go(func() { e.each(ctx, probePeriod, "exec probe", func() error { return e.probe(e.ctx(), id) }) })
	}
	all.Go(func() { e.each(ctx, relistPeriod, "relist", func() error { return e.relist(e.ctx()) }) })
	all.Go(func() {
		e.each(ctx, statsPeriod, "statistics", func() error {
			_, err := e.Runtime.ListPodSandboxStats(e.ctx(), &cri.ListPodSandboxStatsRequest{})
			return err
		})
	})
	all.Go(func() { e.each(ctx, pullPeriod, "pull", func() error { return e.pullAndRemove(e.ctx()) }) })
	if kill {
		e.killAgain(ctx)
	}
	all.Wait()
}

// note fails the test for an error, unless podd is being killed.
func (e *endurance) note(what string, err error) {
	if err == nil {
		return
	}
	if !e.killed {
		e.Errorf("%s: %v", what, err)
	}
	time.Sleep(100 * time.Millisecond)
}

// each calls f once in each period.
func (e *endurance) each(ctx context.Context, period time.Duration, what string, f func() error) {
	ticks := time.NewTicker(period)
	defer ticks.Stop()
	for ctx.Err() == nil {
		e.note(what, f())
		select {
		case <-ticks.C:
		case <-ctx.Done():
		}
	}
}

// live runs a pod with a container, from its creation to its removal.
func (e *endurance) live(ctx context.Context) error {
	l := &life{k: e.kubelet, pod: e.podConfig(), container: e.containerConfig([]string{"sleep", "1000"})}
	if err := os.MkdirAll(l.pod.LogDirectory, 0o755); err != nil {
		return err
	}
	for _, v := range verbs {
		if err := v.do(l, ctx); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", v.name, err), e.discard(ctx, l))
		}
	}
	e.lives.Add(1)
	return os.RemoveAll(l.pod.LogDirectory)
}

// discard removes a pod after a call that failed, as a kubelet does, which repeats that until it succeeds.
func (e *endurance) discard(ctx context.Context, l *life) (err error) {
	for range 300 {
		var list *cri.ListPodSandboxResponse
		if list, err = e.Runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{}); err == nil {
			at := slices.IndexFunc(list.Items, func(p *cri.PodSandbox) bool {
				return p.GetMetadata().GetUid() == l.pod.GetMetadata().GetUid()
			})
			if at < 0 {
				return nil
			}
			l.podID = list.Items[at].GetId()
			err = errors.Join(l.stopPod(ctx), l.removePod(ctx))
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

func (e *endurance) probe(ctx context.Context, id string) error {
	r, err := e.Runtime.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: id, Cmd: []string{"true"}, Timeout: 60})
	if err == nil && r.ExitCode != 0 {
		err = fmt.Errorf("exit code = %d, want 0", r.ExitCode)
	}
	e.probes.Add(1)
	return err
}

func (e *endurance) relist(ctx context.Context) error {
	_, err1 := e.Runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	_, err2 := e.Runtime.ListContainers(ctx, &cri.ListContainersRequest{})
	return errors.Join(err1, err2)
}

func (e *endurance) pullAndRemove(ctx context.Context) error {
	image := &cri.ImageSpec{Image: churnedImage}
	if _, err := e.Images.PullImage(ctx, &cri.PullImageRequest{Image: image}); err != nil {
		return err
	}
	e.pulls.Add(1)
	_, err := e.Images.RemoveImage(ctx, &cri.RemoveImageRequest{Image: image})
	return err
}

// killAgain kills podd and starts it, at random times, until the context ends.
func (e *endurance) killAgain(ctx context.Context) {
	for {
		select {
		case <-time.After(time.Duration(rand.Int64N(int64(2 * killPeriod)))):
		case <-ctx.Done():
			return
		}
		e.ok("restart podd", e.Restart(e.ctx(), e.Kill9))
		e.kills.Add(1)
	}
}
