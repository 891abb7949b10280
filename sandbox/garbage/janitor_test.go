package garbage

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/podd-project/podd/network"
	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/files"
	"github.com/podd-project/podd/sandbox/handler"
	"github.com/podd-project/podd/sandbox/record"
)

var errBusy = errors.New("busy")

// machine has resources of pods and containers in memory, and notes what is freed. It is also the records.
type machine struct {
	mu          sync.Mutex
	calls       []string
	rootfs      []string
	attachments []string
	fails       map[string]error // by call

	claimed map[string]bool
	known   bool
}

func (m *machine) free(call, id string, ids *[]string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = append(m.calls, call+" "+id)
	if err := m.fails[call]; err != nil {
		return err
	}
	if ids != nil {
		*ids = slices.DeleteFunc(*ids, func(other string) bool { return other == id })
	}
	return nil
}

func (m *machine) list(ids []string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(ids), m.fails["list"]
}

func (m *machine) Release(_ context.Context, id string) error {
	return m.free("release", id, &m.rootfs)
}
func (m *machine) ContainersWithMounts(context.Context) ([]string, error) {
	return m.list(m.rootfs)
}
func (m *machine) Teardown(_ context.Context, id string) error {
	return m.free("detach", id, &m.attachments)
}
func (m *machine) Abandon(_ context.Context, r network.Request) error {
	return m.free("abandon", r.PodID+" "+r.Netns, &m.attachments)
}
func (m *machine) Attachments() ([]string, error) { return m.list(m.attachments) }
func (m *machine) GC(_ context.Context, valid func() []string) error {
	return m.free("collect all but", strings.Join(valid(), ","), nil)
}
func (m *machine) Unpin(context.Context, ...string) error  { return nil }
func (m *machine) Pinned(string) ([]string, error)         { return nil, nil }
func (m *machine) AwaitLoaded(ctx context.Context) error   { return context.Cause(ctx) }
func (m *machine) Claimed() (ids map[string]bool, ok bool) { return m.claimed, m.known }
func (m *machine) Pods() []string                          { return []string{"pod"} }

// runtime finds the containers whose bundles exist.
type runtime struct {
	oci.Runtime
	m *machine
}

func (r runtime) Ready() error                             { return nil }
func (r runtime) List(context.Context) ([]string, error)   { return nil, nil }
func (r runtime) RemoveLostCommands(context.Context) error { return r.m.fails["commands"] }
func (r runtime) Destroy(_ context.Context, id string) (err error) {
	return r.m.free("destroy", id, nil)
}

// newJanitor returns a janitor of m, with a bundle for each of the containers.
func newJanitor(t *testing.T, m *machine, bundles ...string) (*Janitor, *test.Hook) {
	t.Helper()
	dir := t.TempDir()
	paths := record.Layout{Root: filepath.Join(dir, "root"), Run: filepath.Join(dir, "run")}
	for _, id := range bundles {
		if err := os.MkdirAll(paths.Bundle(id), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var handlers handler.Set
	handlers.Replace(&handler.Generation{
		Settings: &handler.Settings{DefaultHandler: "runc"}, Runtimes: map[string]oci.Runtime{"runc": runtime{m: m}},
	})
	log, hook := test.NewNullLogger()
	return NewJanitor(Machine{
		Paths: paths, Files: &files.Files{Layout: paths}, Handlers: &handlers, Namespaces: m, Network: m, Images: m,
		Cgroups: func() ([]string, error) { return nil, nil }, Prefixes: func() []string { return nil },
	}, m, log, func() time.Duration { return time.Minute }), hook
}

func TestCollectFreesUnclaimedInOrder(t *testing.T) {
	t.Parallel()
	m := &machine{
		rootfs: []string{"stray", "kept"}, attachments: []string{"stray", "pod"},
		claimed: map[string]bool{"kept": true, "pod": true}, known: true,
	}
	j, _ := newJanitor(t, m, "stray", "kept")
	if err := j.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{"destroy stray", "release stray", "detach stray", "collect all but pod"}
	if !slices.Equal(m.calls, want) || len(j.Troubles()) > 0 {
		t.Errorf("calls = %q, troubles = %v, want %q and none", m.calls, j.Troubles(), want)
	}
}

func TestCollectFreesNothingIfRecordsAreNotKnown(t *testing.T) {
	t.Parallel()
	m := &machine{rootfs: []string{"stray"}}
	j, _ := newJanitor(t, m, "stray")
	if err := j.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"collect all but pod"}; !slices.Equal(m.calls, want) {
		t.Errorf("calls = %q, want %q", m.calls, want)
	}
	ended, end := context.WithCancelCause(t.Context())
	end(errBusy)
	if err := j.Collect(ended); !errors.Is(err, errBusy) {
		t.Errorf("Collect before the records are loaded = %v, want %v", err, errBusy)
	}
}

func TestDamagedAttachmentIsAbandoned(t *testing.T) {
	t.Parallel()
	m := &machine{attachments: []string{"stray"}, known: true, fails: map[string]error{"detach": network.ErrDamaged}}
	j, _ := newJanitor(t, m)
	if err := j.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := "abandon stray " + j.Machine.Paths.Netns("stray"); !slices.Contains(m.calls, want) {
		t.Errorf("calls = %q, want %q", m.calls, want)
	}
}

func TestCollectFails(t *testing.T) {
	for _, c := range []struct {
		call, what string
		err        error
		pending    int
	}{
		{"release", Rootfs, errBusy, 1},
		{"commands", "commands of a stopped podd", errBusy, 1},
		{"collect all but", "CNI garbage collection", errBusy, 1},
		{"collect all but", "", errdefs.ErrUnavailable, 0}, // a pod is being attached: that is no trouble
		{"list", Rootfs + " list", errBusy, 2},             // and that of attachments
	} {
		t.Run(c.call, func(t *testing.T) {
			t.Parallel()
			m := &machine{rootfs: []string{"stray"}, known: true, fails: map[string]error{c.call: c.err}}
			j, _ := newJanitor(t, m)
			err := j.Collect(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.err.Error()) {
				t.Errorf("Collect = %v, want %v", err, c.err)
			}
			pending := j.Pending()
			if len(pending) != c.pending {
				t.Fatalf("pending = %+v, want %d", pending, c.pending)
			}
			is := func(p Trouble) bool { return p.What == c.what && p.Kind == Cleanup && p.Error == c.err.Error() }
			if c.pending > 0 && !slices.ContainsFunc(pending, is) {
				t.Errorf("pending = %+v, want %s", pending, c.what)
			}
		})
	}
}

func TestRunTriesAgain(t *testing.T) {
	t.Parallel()
	m := &machine{rootfs: []string{"stray"}, known: true, fails: map[string]error{"release": errBusy}}
	j, hook := newJanitor(t, m)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		j.wake = make(chan struct{}, 1) // of this bubble
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go j.Run(ctx)
		time.Sleep(retryDelay + 2*retryDelay + time.Second)
		synctest.Wait()
		var delays []string
		for _, entry := range hook.AllEntries() {
			if delay, ok := entry.Data["retry_in"]; ok {
				delays = append(delays, delay.(string))
			}
		}
		if want := []string{"10s", "20s", "40s"}; !slices.Equal(delays, want) {
			t.Errorf("retry_in = %q, want %q", delays, want)
		}
		if p := j.Pending(); len(p) != 1 || !p[0].Since.Equal(began) {
			t.Errorf("pending = %+v, want one since %v", p, began)
		}
		m.mu.Lock()
		m.fails = nil
		m.mu.Unlock()
		j.WakeUp()
		j.WakeUp() // must not block
		synctest.Wait()
		if p := j.Troubles(); len(p) > 0 || len(m.rootfs) > 0 {
			t.Errorf("troubles = %+v, left %q, want none", p, m.rootfs)
		}
	})
}

func TestQuarantine(t *testing.T) {
	t.Parallel()
	j, _ := newJanitor(t, &machine{})
	var paths []string
	for _, id := range []string{"damaged", "unfinished"} {
		paths = append(paths, filepath.Join(j.Machine.Paths.Pods(), id))
		if err := os.MkdirAll(filepath.Join(j.Machine.Paths.Pods(), id), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	j.Quarantine(filepath.Join(j.Machine.Paths.Pods(), "absent"), errBusy)
	j.Quarantine(paths[0], errBusy)
	j.RemoveUnfinished(paths[1], errBusy)
	for _, path := range paths {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, want it gone", path, err)
		}
	}
	next := NewJanitor(j.Machine, nil, j.Log, nil)
	next.ListQuarantine()
	for janitor, want := range map[*Janitor]string{j: errBusy.Error(), next: ""} {
		got := janitor.Troubles()
		if len(got) != 1 || got[0].Kind != Quarantined || got[0].ID != "damaged" || got[0].Error != want ||
			filepath.Dir(got[0].Path) != j.Machine.Paths.Quarantine() {
			t.Errorf("troubles = %+v, want the record damaged in the quarantine, error %q", got, want)
		}
	}
}

func TestSortTroubles(t *testing.T) {
	t.Parallel()
	list := []Trouble{
		{Kind: Unread, What: "record", ID: "1"}, {Kind: Cleanup, What: "network attachment"},
		{Kind: Cleanup, What: "container", ID: "2"}, {Kind: Cleanup, What: "container", ID: "1"},
	}
	want := []Trouble{list[3], list[2], list[1], list[0]}
	if SortTroubles(list); !slices.Equal(list, want) {
		t.Errorf("sorted = %+v, want %+v", list, want)
	}
}
