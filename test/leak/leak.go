// Package leak proves that nothing is left: it lists what pods and containers use of a machine before and after, and
// says what is new.
//
//	func TestSomething(t *testing.T) {
//		leak.Check(t, leak.Options{Match: []string{privateDir}}) // first, so that it looks last
//
// It looks at mounts, network namespaces, cgroups, processes of containers, network links, packet filter rules, the
// address store of the CNI plugin host-local, listening unix sockets, and files named by the caller. It changes nothing.
// Tests use Check; scripts use the command in cmd/leak.
package leak

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// Options say where to look.
type Options struct {
	// Match limits the check to what mentions one of these: a directory, a bridge, a cgroup parent. Empty means the
	// whole machine, which is right only when nobody else runs containers meanwhile.
	Match []string
	// Ignore leaves out what mentions one of these: a daemon that was started anew.
	Ignore []string
	// Files are glob patterns of files and directories that must be the same before and after.
	Files []string
	// Wait is how long to wait for things to go; 0 means five seconds.
	Wait time.Duration
}

// Snapshot is what was there at one time: kind of thing, what identifies it, and what helps to find it.
type Snapshot map[string]map[string]string

// kinds are the things looked at, each listed by one function.
var kinds = []struct {
	name string
	list func(Options) (map[string]string, error)
}{
	{"mount", mounts},
	{"netns", netns},
	{"cgroup", cgroups},
	{"process", processes},
	{"link", links},
	{"rule", rules},
	{"cni", cniState},
	{"socket", sockets},
	{"file", files},
}

// Take lists everything.
func Take(o Options) (Snapshot, error) {
	s := Snapshot{}
	for _, k := range kinds {
		found, err := k.list(o)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", k.name, err)
		}
		s[k.name] = found
	}
	return s.Only(o), nil
}

// Only returns the things that are of interest.
func (s Snapshot) Only(o Options) Snapshot {
	some := Snapshot{}
	for kind, all := range s {
		some[kind] = maps.Clone(all)
		maps.DeleteFunc(some[kind], func(key, detail string) bool { return !o.matches(key, detail) })
	}
	return some
}

// matches is true when the thing is of interest.
func (o Options) matches(key, detail string) bool {
	mentions := func(m string) bool { return strings.Contains(key, m) || strings.Contains(detail, m) }
	if slices.ContainsFunc(o.Ignore, mentions) {
		return false
	}
	return len(o.Match) == 0 || slices.ContainsFunc(o.Match, mentions)
}

// owned are the kinds of which a missing one is as bad as one too many: somebody else's was taken down.
var owned = []string{"mount", "link", "rule"}

// Diff returns a line for everything that is new since s, and for what was taken away and was not podd's to take. Empty
// means that nothing leaked.
func (s Snapshot) Diff(later Snapshot) []string {
	var lines []string
	for _, k := range kinds {
		before, after := s[k.name], later[k.name]
		for _, key := range slices.Sorted(maps.Keys(after)) {
			if _, ok := before[key]; !ok {
				lines = append(lines, strings.TrimRight(fmt.Sprintf("left over: %-8s %s  %s", k.name, key, after[key]), " "))
			}
		}
		if !slices.Contains(owned, k.name) {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(before)) {
			if _, ok := after[key]; !ok {
				lines = append(lines, strings.TrimRight(fmt.Sprintf("lost:      %-8s %s  %s", k.name, key, before[key]), " "))
			}
		}
	}
	return lines
}

// Wait compares again and again until nothing is left over or the time is up, and returns the last comparison.
func (s Snapshot) Wait(ctx context.Context, o Options) ([]string, error) {
	wait := o.Wait
	if wait == 0 {
		wait = 5 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		now, err := Take(o)
		if err != nil {
			return nil, err
		}
		lines := s.Diff(now)
		if len(lines) == 0 {
			return nil, nil
		}
		select {
		case <-ctx.Done():
			return lines, nil
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Check looks now and again when the test has ended and all cleanups registered later have run, and fails the test
// for what is left.
func Check(t testing.TB, o Options) {
	t.Helper()
	before, err := Take(o)
	if err != nil {
		t.Fatalf("leak check: %v", err)
	}
	t.Cleanup(func() {
		lines, err := before.Wait(context.WithoutCancel(t.Context()), o)
		if err != nil {
			t.Errorf("leak check: %v", err)
		}
		for _, l := range lines {
			t.Errorf("leak: %s", l)
		}
	})
}
