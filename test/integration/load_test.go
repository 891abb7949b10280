package integration

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestLoad runs 100 pods from 20 callers and kills the daemon when half of them are started. The next daemon serves
// soon, the callers repeat their requests and get all pods, and everything can be removed without leaks.
func TestLoad(t *testing.T) {
	t.Parallel()
	k := start(t)
	lives := make([]*life, soak(100, 250))
	for i := range lives {
		lives[i] = k.newLife()
		lives[i].pod.PortMappings = nil
	}
	made := func(n int, l *life) error {
		if err := l.run(k.ctx()); err != nil || n%5 != 0 {
			return err
		}
		if err := l.create(k.ctx()); err != nil {
			return err
		}
		return l.start(k.ctx())
	}

	var count atomic.Int64
	killed := make(chan error, 1)
	begin := time.Now()
	_ = forEachLife(20, lives, func(n int, l *life) error { // most of them get an error
		if count.Add(1) == int64(len(lives)/2) {
			killed <- k.Kill9()
		}
		return l.run(k.ctx())
	})
	k.ok("kill podd", <-killed)
	halfway := time.Since(begin)
	k.startInTime("with half of the pods made")
	listed := len(k.pods(nil))

	begin = time.Now()
	k.ok("repeat all requests", forEachLife(20, lives, made))
	t.Logf("killed after %v with %d pods; then all of %d pods, a fifth of them with a container, in %v",
		halfway.Round(time.Millisecond), listed, len(lives), time.Since(begin).Round(time.Millisecond))
	k.ok("kill podd", k.Kill9())
	k.startInTime("with all pods made")

	addresses := map[string]bool{}
	for _, p := range k.pods(nil) {
		if p.State != cri.PodSandboxState_SANDBOX_READY {
			t.Errorf("state of pod %s = %v, want SANDBOX_READY", p.Id, p.State)
		}
		addresses[k.podStatus(p.Id).Network.GetIp()] = true
	}
	if n := len(k.pods(nil)); n != len(lives) || len(addresses) != n {
		t.Errorf("%d pods with %d addresses, want %d of both", n, len(addresses), len(lives))
	}
	k.bundleOfAll()
	begin = time.Now()
	k.ok("remove all", forEachLife(20, lives, func(_ int, l *life) error {
		return errors.Join(l.stopPod(k.ctx()), l.removePod(k.ctx()))
	}))
	t.Logf("all removed in %v", time.Since(begin).Round(time.Millisecond))
}

// bundleOfAll makes a bundle, which must show every pod.
func (k *kubelet) bundleOfAll() {
	k.Helper()
	pods, begin := k.pods(nil), time.Now()
	status := k.bundle("full.tar.gz")["status.json"]
	took := time.Since(begin)
	for _, p := range pods {
		if !strings.Contains(status, p.Id) {
			k.Errorf("the bundle's status.json has no pod %s", p.Id)
		}
	}
	info, err := os.Stat(k.Path("full.tar.gz"))
	k.ok("stat the bundle", err)
	k.Logf("bundle of %d pods: %d KB in %v", len(pods), info.Size()>>10, took.Round(time.Millisecond))
}

// startInTime starts the daemon and logs how long it took until it served. The limit is for a busy machine and the race
// detector; without either it takes less than 2 s.
func (k *kubelet) startInTime(when string) {
	k.Helper()
	begin := time.Now()
	k.ok("start podd", k.Start(k.ctx()))
	took := time.Since(begin)
	k.Logf("serving %v after the start, %s", took.Round(time.Millisecond), when)
	if took > 30*time.Second {
		k.Errorf("start %s took %v, want at most 30s", when, took)
	}
}

// forEachLife calls f for all lives from n goroutines, and returns the errors.
func forEachLife(n int, lives []*life, f func(int, *life) error) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	work := make(chan int)
	for range n {
		wg.Go(func() {
			for i := range work {
				if err := f(i, lives[i]); err != nil {
					mu.Lock()
					errs = append(errs, fmt.Errorf("pod %d: %w", i, err))
					mu.Unlock()
				}
			}
		})
	}
	for i := range lives {
		work <- i
	}
	close(work)
	wg.Wait()
	return errors.Join(errs...)
}
