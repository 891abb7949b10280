// Package leak checks that tests leave nothing on the machine: it lists the resources of pods and containers before and
// after, and reports the differences.
//
//	func TestSomething(t *testing.T) {
//		leak.Check(t, leak.Options{Match: []string{privateDir}}) // first, so that its cleanup runs last
//
// It lists mounts, network namespaces, cgroups, processes of containers, network links, packet filter rules, the
// address store of the CNI plugin host-local, listening unix sockets, and files named by the caller. It changes
// nothing. Tests use Check, which fails for every difference that Options select. The command in cmd/leak, for scripts,
// compares the whole machine and fails for what podd's tests made, see attribute.go.
package leak

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// Options select the things to compare.
type Options struct {
	// Match limits the check to things whose key or detail contains one of these: a directory, a bridge, a cgroup
	// parent. Empty means the whole machine.
	Match []string
	// Ignore leaves out things whose key or detail contains one of these.
	Ignore []string
	// Daemon is the process id of a podd that runs and is not left over; 0 means none.
	Daemon int
	// Files are glob patterns of files and directories that must be the same before and after.
	Files []string
	// Wait is how long to wait for things to disappear; 0 means five seconds.
	Wait time.Duration
}

// Snapshot has the things that existed at one time: by kind and key, a detail that helps to find the thing.
type Snapshot map[string]map[string]string

// kinds are the kinds of things, each listed by one function.
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

// Only returns the things that the options select.
func (s Snapshot) Only(o Options) Snapshot {
	some := Snapshot{}
	for kind, all := range s {
		some[kind] = maps.Clone(all)
		maps.DeleteFunc(some[kind], func(key, detail string) bool { return !o.matches(key, detail) })
	}
	return some
}

// matches reports whether the options select the thing.
func (o Options) matches(key, detail string) bool {
	mentions := func(m string) bool { return strings.Contains(key, m) || strings.Contains(detail, m) }
	if slices.ContainsFunc(o.Ignore, mentions) {
		return false
	}
	return len(o.Match) == 0 || slices.ContainsFunc(o.Match, mentions)
}

// notOurs are the kinds of which a missing thing is reported too: podd may have removed what another program made.
var notOurs = []string{"mount", "link", "rule"}

// Compare returns everything that is new since s, and what is missing of the kinds in notOurs.
func (s Snapshot) Compare(later Snapshot) []Difference {
	var list []Difference
	for _, k := range kinds {
		before, after := s[k.name], later[k.name]
		list = append(list, missing(k.name, after, before, false)...)
		if slices.Contains(notOurs, k.name) {
			list = append(list, missing(k.name, before, after, true)...)
		}
	}
	attribute(list, s, later)
	return list
}

// missing returns what is in some and not in others, in order.
func missing(kind string, some, others map[string]string, lost bool) []Difference {
	var list []Difference
	for _, key := range slices.Sorted(maps.Keys(some)) {
		if _, ok := others[key]; !ok {
			list = append(list, Difference{Kind: kind, Key: key, Detail: some[key], Lost: lost})
		}
	}
	return list
}

// Diff returns Compare's differences as lines.
func (s Snapshot) Diff(later Snapshot) []string {
	return lines(s.Compare(later))
}

func lines(list []Difference) []string {
	var text []string
	for _, d := range list {
		text = append(text, d.String())
	}
	return text
}

// Wait compares until there is no difference or the time is up, and returns the last comparison.
func (s Snapshot) Wait(ctx context.Context, o Options) ([]string, error) {
	list, err := s.wait(ctx, o, func(Difference) bool { return true })
	return lines(list), err
}

// WaitExcept is Wait without the differences that are expected.
func (s Snapshot) WaitExcept(ctx context.Context, o Options, expected func(Difference) bool) ([]string, error) {
	list, err := s.wait(ctx, o, func(d Difference) bool { return !expected(d) })
	return lines(slices.DeleteFunc(list, expected)), err
}

// WaitForOurs compares until no difference is podd's or the time is up. It returns the last comparison: the differences
// that are podd's, by name, and the others.
func (s Snapshot) WaitForOurs(ctx context.Context, o Options) (ours, others []string, err error) {
	isOurs := func(d Difference) bool { return d.Ours }
	list, err := s.wait(ctx, o, isOurs)
	others = lines(slices.DeleteFunc(slices.Clone(list), isOurs))
	ours = lines(slices.DeleteFunc(list, func(d Difference) bool { return !d.Ours }))
	return ours, others, err
}

// wait compares until no difference counts or the time is up.
func (s Snapshot) wait(ctx context.Context, o Options, counts func(Difference) bool) ([]Difference, error) {
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
		list := s.Compare(now)
		if !slices.ContainsFunc(list, counts) {
			return list, nil
		}
		select {
		case <-ctx.Done():
			return list, nil
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Kept reports whether to keep for inspection what the test made: the test has failed and PODD_KEEP is set.
func Kept(t testing.TB) bool { return t.Failed() && os.Getenv("PODD_KEEP") != "" }

// Check takes a snapshot now and compares with it when the test has ended and all cleanups registered later have run.
// It fails the test for each difference.
func Check(t testing.TB, o Options) {
	t.Helper()
	before, err := Take(o)
	if err != nil {
		t.Fatalf("leak check: %v", err)
	}
	t.Cleanup(func() {
		if Kept(t) {
			return
		}
		lines, err := before.Wait(context.WithoutCancel(t.Context()), o)
		if err != nil {
			t.Errorf("leak check: %v", err)
		}
		for _, l := range lines {
			t.Errorf("leak: %s", l)
		}
	})
}
