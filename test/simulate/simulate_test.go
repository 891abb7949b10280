package simulate

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/podd-project/podd/test/simulate/kubelet"
)

var (
	seeds   = flag.Int("seeds", 20, "how many seeds are played")
	first   = flag.Uint64("seed", 1, "the first seed; alone with -seeds=1")
	verbose = flag.Bool("log", false, "print the log of each seed, with podd's")
	bites   = flag.String("bites", "", "play with known bugs in podd: all, or names with commas")
	stop    = flag.Bool("stop", false, "stop at the first seed that fails")
	minutes = flag.Int("minutes", 15, "virtual minutes with faults")
	pods    = flag.Int("pods", 5, "how many pods are wanted at most")
	without = flag.String("without", "", "kinds of faults that do not happen, with commas: see shrink_test.go")
	shrunk  = flag.Bool("shrink", false, "shrink the first seed")
)

// TestMain lets one goroutine run at a time: those that one event wakes run in the same order in each run.
func TestMain(m *testing.M) {
	flag.Parse()
	runtime.GOMAXPROCS(1)
	os.Exit(m.Run())
}

// settleTime is how long podd has, once faults have ended and nothing is wanted, until nothing is left: a pod that no
// caller has heard of is kept for ten minutes, and calls that hang may last twenty.
const settleTime = time.Hour

// play plays one seed and returns its log and the violations.
func play(t *testing.T, seed uint64) (log string, broken []string) {
	var h *history
	dir, err := os.MkdirTemp(memory(), "simulate-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	cryptotest.SetGlobalRandom(t, seed) // ids, whose order is that of directories
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, seed, dir)
		w.live()
		log, broken, h = w.text(), w.broken, w.history
	})
	broken = append(broken, h.check()...)
	return log, broken
}

// memory returns a directory in memory if there is one.
func memory() string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return "/dev/shm"
	}
	return ""
}

func (w *world) live() {
	ctx, end := context.WithCancel(context.Background())
	n := &node{w: w}
	timeouts := []time.Duration{5 * time.Second, 20 * time.Second, 2 * time.Minute}
	k := kubelet.New(n, kubelet.Config{
		Timeout: timeouts[w.roll("timeout").IntN(len(timeouts))], Pods: *pods, Change: 40 * time.Second,
		Wish: func(i int) *kubelet.Wish { return kubelet.NewWish(w.roll(fmt.Sprint("wish ", i)), i) },
	})
	var all, faults sync.WaitGroup
	for _, f := range []func(context.Context){
		n.run, k.Run, func(ctx context.Context) { w.truth.watch(ctx, n) },
	} {
		all.Go(func() { f(ctx) })
	}
	wishing, enough := context.WithTimeout(ctx, time.Duration(*minutes)*time.Minute)
	faults.Go(func() { k.Change(wishing) })
	faults.Go(func() { n.harm(wishing) })
	faults.Wait()
	enough()
	w.log("faults have ended")
	w.setFaulty(false)
	w.disk.setFault(nil)
	w.calm(k)
	k.GiveUp()
	k.WantNothing()
	w.settle(n)
	end()
	all.Wait()
}

// calm waits until each pod that is wanted is ready, with each of its containers started or over.
func (w *world) calm(k *kubelet.Kubelet) {
	deadline := time.Now().Add(settleTime)
	for w.pause(context.Background(), "calm", 10*time.Second) {
		missing := k.Missing()
		if len(missing) == 0 {
			w.log("all that is wanted is there")
			return
		}
		if time.Now().After(deadline) {
			w.violated(ruleRun, "after %v: %s", settleTime, strings.Join(missing, ", "))
			return
		}
	}
}

// settle waits until nothing is left.
func (w *world) settle(n *node) {
	deadline := time.Now().Add(settleTime)
	for {
		left := w.m.Leaks()
		if p := n.podd(); p != nil && len(p.e.Pods()) == 0 && len(left) == 0 {
			w.log("nothing is left")
			return
		}
		if time.Now().After(deadline) {
			w.violated(ruleEnd, "after %v: %s", settleTime, strings.Join(left, ", "))
			return
		}
		w.pause(context.Background(), "settle", 10*time.Second)
	}
}

// TestSimulate plays seeds. A seed that fails says how to play it alone.
func TestSimulate(t *testing.T) {
	for seed := *first; seed < *first+uint64(*seeds); seed++ {
		log, broken := play(t, seed)
		if *verbose {
			t.Log("\n" + log)
		}
		if len(broken) > 0 {
			t.Errorf("seed %d (go test ./test/simulate -run TestSimulate -seeds=1 -seed=%d -log):\n%s", seed, seed,
				strings.Join(broken[:min(len(broken), 5)], "\n"))
			if *stop {
				return
			}
		}
	}
}

// TestReproducible: a seed gives the same log, byte for byte, and another seed another one.
func TestReproducible(t *testing.T) {
	for seed := *first; seed < *first+uint64(min(*seeds, 2)); seed++ {
		one, _ := play(t, seed)
		two, _ := play(t, seed)
		if one != two {
			t.Errorf("seed %d: %s", seed, difference(one, two))
		}
		if other, _ := play(t, seed+1); other == one {
			t.Errorf("seeds %d and %d have one log", seed, seed+1)
		}
	}
}

func difference(one, two string) string {
	a, b := strings.Split(one, "\n"), strings.Split(two, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("line %d:\n%s\n%s\n\n%s", i+1, strings.Join(a[max(0, i-5):i+1], "\n"), b[i],
				strings.Join(b[max(0, i-5):min(len(b), i+3)], "\n"))
		}
	}
	return "one is longer"
}
