package sandbox

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing/synctest"

	"github.com/podd-project/podd/checkpoint"
)

// faults is in the hooks of the mechanisms of one engine. It counts the engine's calls of them, and can fail one, hold
// it, or end the engine in it.
type faults struct {
	mu    sync.Mutex
	calls []string
	// failAt is the number of the call that fails, from 1; 0 for none. With late the call has its effect first.
	failAt int
	late   bool
	// crash ends the calling goroutine at failAt instead, and at every later call: the daemon is dead.
	crash bool
	dead  chan struct{}
	// pending is the call that is to fail after its effect.
	pending string
	// rules decide about all calls of a verb, by its first word.
	rules map[string]rule
	// holds make calls of a verb wait.
	holds map[string]*hold
}

// rule returns the error of a call, nil to let it happen.
type rule func(ctx context.Context, id string) error

// hold is a place where calls wait until released is closed. The first one closes reached.
type hold struct {
	reached, released chan struct{}
	reach             func()
}

var errInjected = errors.New("injected failure")

func newFaults() *faults {
	return &faults{dead: make(chan struct{}), rules: map[string]rule{}, holds: map[string]*hold{}}
}

func (h *faults) callNames() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.calls)
}

func (h *faults) count(verb string) (n int) {
	for _, call := range h.callNames() {
		if call == verb {
			n++
		}
	}
	return n
}

// arm forgets the calls so far, and makes number k of those to come fail or crash.
func (h *faults) arm(k int, late, crash bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls, h.failAt, h.late, h.crash = nil, k, late, crash
}

// on sets the rule of a verb: the first word of a call. Nil removes it.
func (h *faults) on(verb string, r rule) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rules[verb] = r
}

// fail makes all calls of the verbs fail, until heal.
func (h *faults) fail(verbs ...string) {
	for _, verb := range verbs {
		h.on(verb, func(context.Context, string) error { return errInjected })
	}
}

func (h *faults) heal(verbs ...string) {
	for _, verb := range verbs {
		h.on(verb, nil)
	}
}

// kill makes the engine a dead one: its goroutines end at their next call.
func (h *faults) kill() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.die()
}

func (h *faults) die() {
	select {
	case <-h.dead:
	default:
		close(h.dead)
	}
}

func (h *faults) exitIfDead() {
	select {
	case <-h.dead:
		runtime.Goexit()
	default:
	}
}

// before is the hook Before of the mechanisms. A wait for the end of a container is not counted: when it is called
// depends on the scheduler.
func (h *faults) before(ctx context.Context, verb, id string) error {
	first, _, _ := strings.Cut(verb, " ")
	h.mu.Lock()
	failing := false
	if verb != "wait" {
		h.calls = append(h.calls, verb)
		failing = len(h.calls) == h.failAt
	}
	if failing && h.late {
		h.pending, failing = verb+" "+id, false
	}
	if failing && h.crash {
		h.die()
	}
	rule, held := h.rules[first], h.holds[verb]
	h.mu.Unlock()
	h.exitIfDead()
	if held != nil {
		held.reach()
		select {
		case <-held.released:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if failing {
		return errInjected
	}
	if rule != nil {
		return rule(ctx, id)
	}
	return nil
}

// fakeRecords is where an engine's records are. Rules and holds of the verbs commit, status and sync apply.
type fakeRecords struct {
	checkpoint.Files
	h *faults
}

func (d fakeRecords) Commit(path, final string) error { return d.h.commit(path, final) }

func (d fakeRecords) WriteUnsynced(path string, version int, v any) error {
	if err := d.h.disk("status", path); err != nil {
		return err
	}
	return d.Files.WriteUnsynced(path, version, v)
}

func (d fakeRecords) Write(path string, version int, v any) error {
	if err := d.h.disk("status", path); err != nil {
		return err
	}
	return d.Files.Write(path, version, v)
}

func (d fakeRecords) Sync(path string) error {
	if err := d.h.disk("sync", path); err != nil {
		return err
	}
	return d.Files.Sync(path)
}

// disk returns the error of the rule of verb, a call of the disk about a file of a pod or container.
func (h *faults) disk(verb, path string) error {
	h.mu.Lock()
	rule := h.rules[verb]
	h.mu.Unlock()
	if rule == nil {
		return nil
	}
	return rule(context.Background(), filepath.Base(filepath.Dir(path)))
}

// commit is fakeRecords.Commit: rules and holds of the verb commit apply. It is not counted, because when it is called
// depends on the scheduler. In a dead engine it fails.
func (h *faults) commit(path, final string) error {
	h.mu.Lock()
	held := h.holds["commit"]
	h.mu.Unlock()
	select {
	case <-h.dead:
		return errInjected
	default:
	}
	if held != nil {
		held.reach()
		select {
		case <-held.released:
		case <-h.dead:
			return errInjected
		}
	}
	if err := h.disk("commit", path); err != nil {
		return err
	}
	return checkpoint.Commit(path, final)
}

// after is the hook After of the mechanisms.
func (h *faults) after(_ context.Context, verb, id string) error {
	h.mu.Lock()
	failing := h.pending == verb+" "+id
	if failing {
		h.pending = ""
		if h.crash {
			h.die()
		}
	}
	h.mu.Unlock()
	h.exitIfDead()
	if failing {
		return errInjected
	}
	return nil
}

// hold makes calls of a verb wait; the function it returns lets them go.
func (h *faults) hold(verb string) (release func()) {
	held := &hold{reached: make(chan struct{}), released: make(chan struct{})}
	held.reach = sync.OnceFunc(func() { close(held.reached) })
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holds[verb] = held
	return sync.OnceFunc(func() {
		h.unhold(verb)
		close(held.released)
	})
}

// unhold lets later calls of the verb go at once; those that wait already go on waiting.
func (h *faults) unhold(verb string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.holds, verb)
}

// held returns a channel that is closed when a call of the verb, which must be on hold, has come.
func (h *faults) held(verb string) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.holds[verb].reached
}

// await returns once a call of the verb is held. A pod's infra container makes the same calls as others, so that a call
// was made proves nothing.
func (h *faults) await(verb string) { <-h.held(verb) }

// givesUpAt returns a caller's context that ends once a call of the verb is held.
func (h *faults) givesUpAt(parent context.Context, verb string) context.Context {
	ctx, cancel := context.WithCancel(parent)
	held := h.held(verb)
	go func() {
		defer cancel()
		select {
		case <-held:
		case <-parent.Done():
		}
	}()
	return ctx
}

// runUntilDead runs f until it returns or the daemon has died in it, waits until what f left running has come to rest,
// and reports whether the daemon died. It must be called in a synctest bubble.
func (h *faults) runUntilDead(f func(context.Context)) bool {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done) // also when the goroutine is ended by the crash
		f(ctx)
	}()
	select {
	case <-h.dead:
		cancel()
		<-done
	case <-done:
	}
	synctest.Wait()
	select {
	case <-h.dead:
		return true
	default:
		return false
	}
}
