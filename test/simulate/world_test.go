package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/podd-project/podd/sandbox/sandboxtest"
	"github.com/podd-project/podd/test/simulate/kubelet"
)

// world is one history: a machine, its disk, the podds that run on it in turn, and the log. Everything that happens
// follows from the seed: each outside call of the engine takes a virtual time that depends on the seed, the call and
// how often it was made, and no two take equally long. So goroutines run one after the other.
type world struct {
	t       *testing.T
	seed    uint64
	m       *sandboxtest.Machine
	disk    *disk
	truth   *truth
	history *history
	start   time.Time

	mu     sync.Mutex
	faulty bool              // faults happen
	counts map[string]uint64 // of calls
	names  map[string]string // of pods and containers, by id
	made   map[string]int    // pods and containers by name
	births map[string]int    // boots, by id
	lines  []line
	broken []string // violations of invariants
	boot   int
}

type line struct {
	at   time.Duration
	text string
}

func newWorld(t *testing.T, seed uint64, dir string) *world {
	w := &world{
		t: t, seed: seed, m: sandboxtest.New(dir, "runc"), start: time.Now(), faulty: true,
		counts: map[string]uint64{}, names: map[string]string{}, made: map[string]int{}, births: map[string]int{}, boot: 1,
	}
	w.disk = &disk{
		w: w, files: map[string]*file{}, dirs: map[string]bool{},
		stale: map[string]bool{}, refused: map[string]bool{}, lost: map[string]bool{},
	}
	w.truth = newTruth(w)
	w.history = &history{
		w: w, calls: map[string][]porcupine.Operation{}, runs: map[string]map[string]run{}, alive: map[string]bool{},
	}
	return w
}

// roll returns the random numbers of one call: they depend on the seed, the call, and how often it was made before.
func (w *world) roll(key string) *rand.Rand {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[key]++
	return kubelet.Roll(w.seed, key, w.counts[key])
}

func (w *world) isFaulty() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.faulty
}

// may reports whether faults of that kind happen.
func (w *world) may(kind string) bool {
	return w.isFaulty() && (*without == "" || !slices.Contains(strings.Split(*without, ","), kind))
}

func (w *world) setFaulty(faulty bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faulty = faulty
}

// log adds a line. Ids are replaced by names, because they differ from run to run.
func (w *world) log(format string, args ...any) {
	text := w.rename(fmt.Sprintf(format, args...))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, line{time.Since(w.start), text})
}

// violated notes that an invariant does not hold; rule is the sentence that it stands for.
func (w *world) violated(rule, format string, args ...any) {
	text := w.rename(fmt.Sprintf(format, args...))
	w.log("VIOLATION %s: %s", rule, text)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = append(w.broken, fmt.Sprintf("%s: %s (at %v)", rule, text, time.Since(w.start)))
}

// text returns the log. Lines of one instant come in the order of the alphabet.
func (w *world) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := slices.Clone(w.lines)
	slices.SortStableFunc(lines, func(a, b line) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.text, b.text))
	})
	var out strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&out, "%14.6f %s\n", l.at.Seconds(), l.text)
	}
	return out.String()
}

// christen gives the pod or container with this id a name for the log.
func (w *world) christen(id, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made[name]++
	w.births[id] = w.boot
	w.names[id] = fmt.Sprintf("%s#%d", name, w.made[name])
}

// rebooted reports whether the machine was booted since the creation of a pod or container.
func (w *world) rebooted(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.births[id] < w.boot
}

var (
	ids    = regexp.MustCompile(`[0-9a-f]{64}`)
	random = regexp.MustCompile(`(\.tmp-[a-z.]*-)[0-9]+`)
)

// rename replaces ids by names and removes the directory of the machine.
func (w *world) rename(text string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text = ids.ReplaceAllStringFunc(text, func(id string) string { return cmp.Or(w.names[id], "someone") })
	return random.ReplaceAllString(strings.ReplaceAll(text, w.m.Dir, ""), "$1")
}

// nameIn returns the name of whose id is the last in text, "" if there is none.
func (w *world) nameIn(text string) string {
	w.mu.Lock()
	name := w.names[text]
	w.mu.Unlock()
	if name != "" {
		return name
	}
	found := ids.FindAllString(text, -1)
	if len(found) == 0 {
		return ""
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return cmp.Or(w.names[found[len(found)-1]], "someone") // of a container's path: the container's
}

var errInjected = errors.New("injected failure")

// jitter makes a time unlike all others.
func jitter(r *rand.Rand) time.Duration { return time.Duration(r.Int64N(int64(time.Millisecond))) }

// pause sleeps for about d, until ctx ends; it returns false then.
func (w *world) pause(ctx context.Context, key string, d time.Duration) bool {
	timer := time.NewTimer(d + jitter(w.roll("pause "+key)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// calls are the hooks of one podd in the fakes: they decide what becomes of each of its outside calls.
type calls struct {
	w    *world
	dead chan struct{}
	once sync.Once
	// fuse is about the number of calls until podd is killed.
	fuse int
	slow bool // the machine is busy
}

func (c *calls) kill() { c.once.Do(func() { close(c.dead) }) }

func (c *calls) isDead() bool {
	select {
	case <-c.dead:
		return true
	default:
		return false
	}
}

// burn kills podd in a call, if r says so, and ends the calls of a podd that was killed.
func (c *calls) burn(r *rand.Rand, what string) {
	if r.IntN(c.fuse) == 0 && c.w.may("kill") && !c.isDead() {
		c.w.log("podd is killed in %s", what)
		c.kill()
	}
	if c.isDead() {
		runtime.Goexit()
	}
}

// before is the hook at the start of a call: it takes its time, and may fail or hang.
func (c *calls) before(ctx context.Context, verb, id string) error {
	if verb == "resolve" { // it says not for whom, and several may come at once
		return nil
	}
	what := strings.TrimSpace(verb + " " + c.w.nameIn(id))
	r, faulty := c.w.roll(what), c.w.may("fail")
	if verb == "wait" { // it ends with the container, and is no step of a verb
		if faulty && r.IntN(20) == 0 {
			c.w.log("fails: %s", what)
			return errInjected
		}
		return nil
	}
	took := c.takes(r, c.w.may("slow"))
	if took > 2*time.Second {
		c.w.log("slow: %s takes %v", what, took)
	}
	timer := time.NewTimer(took + jitter(r))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		c.w.log("given up: %s", what)
		time.Sleep(jitter(r))
	case <-c.dead:
	}
	c.burn(r, what)
	if faulty && r.IntN(40) == 0 {
		c.w.log("fails: %s", what)
		return errInjected
	}
	c.w.log("call: %s", what)
	return nil
}

// takes returns how long a call takes.
func (c *calls) takes(r *rand.Rand, faulty bool) time.Duration {
	ms := func(from, to int) time.Duration { return time.Duration(from+r.IntN(to-from)) * time.Millisecond }
	p := r.IntN(1000)
	switch {
	case !faulty || p < 850 && !c.slow:
		return ms(1, 30)
	case p < 950:
		return ms(30, 2000)
	case p < 990:
		return ms(2000, 20000)
	case p < 997:
		return ms(20000, 120000)
	}
	return 20 * time.Minute // longer than anybody waits
}

// after is the hook at the end of a call that had its effect.
func (c *calls) after(ctx context.Context, verb, id string) error {
	what := strings.TrimSpace(verb + " " + c.w.nameIn(id))
	if verb == "wait" || verb == "resolve" {
		if c.isDead() {
			runtime.Goexit()
		}
		return nil
	}
	r := c.w.roll("after " + what)
	c.burn(r, "the end of "+what)
	if c.w.may("fail") && r.IntN(60) == 0 {
		c.w.log("fails late: %s", what)
		return errInjected
	}
	return nil
}
