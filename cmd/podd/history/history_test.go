package history

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/podd-project/podd/sandbox/operation"
)

func open(t *testing.T, dir string) *History {
	t.Helper()
	log, _ := logtest.NewNullLogger()
	h, err := Open(dir, log)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func closeHistory(t *testing.T, h *History) {
	t.Helper()
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
}

func id() string {
	var b [32]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// life returns the operations of a pod with a container, as podd reports them.
func life(began time.Time) (all []operation.Operation) {
	pod, container, uid := id(), id(), id()
	name := fmt.Sprintf("team-%d/web-%s-%s", mathrand.IntN(5), uid[:9], uid[9:14])
	uid = fmt.Sprintf("%s-%s-%s-%s-%s", uid[:8], uid[8:12], uid[12:16], uid[16:20], uid[20:32])
	for _, v := range []struct {
		verb, container string
		stages          []string
	}{
		{operation.RunPod, "", []string{"record", "namespaces", "network", "files", "infra container"}},
		{operation.CreateContainer, container, []string{"record", "rootfs", "volumes", "spec", "create"}},
		{operation.StartContainer, container, []string{"start", "record"}},
		{operation.StopContainer, container, []string{"signal", "wait"}},
		{operation.StopPod, "", []string{"containers", "network", "namespaces"}},
		{operation.RemoveContainer, container, []string{"delete", "rootfs", "record"}},
		{operation.RemovePod, "", []string{"record"}},
	} {
		o := operation.Operation{
			Verb: v.verb, Pod: pod, Container: v.container, Name: name, UID: uid, Handler: "runc", Done: true,
			Outcome: operation.OutcomeOK, Began: began,
		}
		if v.container != "" {
			o.Name += "/main"
		}
		for _, s := range v.stages {
			took := operation.Duration(mathrand.N(20 * time.Millisecond))
			o.Stages = append(o.Stages, operation.Stage{Name: s, After: o.Took, Took: took})
			o.Took += took
		}
		all = append(all, o)
		began = began.Add(time.Duration(o.Took))
	}
	return all
}

// wait returns when what was added is written.
func wait(t *testing.T, h *History, n int) []operation.Operation {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		got, err := h.List(Query{Limit: 1 << 20})
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("List() = %d operations, %v, want %d", len(got), err, n)
		}
		if len(got) == n {
			return got
		}
	}
}

// size returns the size of the files in dir together.
func size(t *testing.T, dir string) (sum int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		sum += info.Size()
	}
	return sum
}

// TestTenThousand: 10,000 operations fit into 1 MiB, in the right order, and the size does not grow beyond it.
func TestTenThousand(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir)
	began := time.Now().Add(-24 * time.Hour)
	var all []operation.Operation
	add := func(n int) {
		for i := 0; i < n; {
			for _, o := range life(began) {
				h.write(&o)
				all = append(all, o)
				i++
			}
			began = began.Add(time.Second)
		}
	}
	add(10_500)
	got, err := h.List(Query{Limit: 10_000})
	if err != nil || len(got) != 10_000 {
		t.Fatalf("List() = %d operations, %v, want 10000", len(got), err)
	}
	for i, o := range got {
		if want := all[len(all)-1-i]; o.Pod != want.Pod || o.Verb != want.Verb {
			t.Fatalf("operation %d = %s of %.8s, want %s of %.8s", i, o.Verb, o.Pod, want.Verb, want.Pod)
		}
	}
	t.Logf("%d bytes of %d operations", size(t, dir), len(all))
	// Random errors cannot be compressed: fewer operations fit.
	for i := range 1000 {
		o := life(began)[0]
		for range maxError / 64 {
			o.Error += id()
		}
		h.write(&o)
		if n := size(t, dir); i%50 == 0 && n > maxBytes {
			t.Fatalf("%d bytes, want at most %d", n, maxBytes)
		}
	}
	if n := size(t, dir); n > maxBytes || n < maxBytes/2 {
		t.Errorf("%d bytes, want %d to %d", n, maxBytes/2, maxBytes)
	}
	closeHistory(t, h)
}

// TestKilled: a history whose writer was killed at any byte of a line has all the lines before it, and goes on.
func TestKilled(t *testing.T) {
	source := t.TempDir()
	h := open(t, source)
	all := life(time.Now())
	for _, o := range all[:3] {
		h.Add(t.Context(), o)
	}
	wait(t, h, 3) // and no Close: what is written must not need one
	data, err := os.ReadFile(plainPath(source, 1))
	if err != nil {
		t.Fatal(err)
	}
	end := strings.LastIndexByte(strings.TrimSuffix(string(data), "\n"), '\n') + 1
	for cut := end; cut < len(data); cut += 7 {
		dir := t.TempDir()
		if err := os.WriteFile(plainPath(dir, 1), data[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		again := open(t, dir)
		again.Add(t.Context(), all[3])
		got := wait(t, again, 3)
		if got[0].Verb != all[3].Verb || got[1].Verb != all[1].Verb || got[2].Verb != all[0].Verb {
			t.Errorf("cut at %d: %s, %s, %s; want the third one lost", cut, got[0].Verb, got[1].Verb, got[2].Verb)
		}
		closeHistory(t, again)
	}
	closeHistory(t, h)
}

// TestKilledWhileSealing: a segment that is there both compressed and not counts once.
func TestKilledWhileSealing(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir)
	for _, o := range life(time.Now()) {
		h.Add(t.Context(), o)
	}
	wait(t, h, 7)
	plain, err := os.ReadFile(plainPath(dir, 1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.active.seal(); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{plainPath(dir, 1): 0o600, filepath.Join(dir, ".tmp-1"): 0o600} {
		if err := os.WriteFile(name, plain, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(plainPath(dir, 2)); err != nil {
		t.Fatal(err)
	}
	again := open(t, dir)
	wait(t, again, 7)
	closeHistory(t, again)
	if n, err := segments(dir); err != nil || !cmp.Equal(n, []int{1, 2}) {
		t.Errorf("segments = %v, %v, want 1 and 2", n, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, ".tmp-1")); !os.IsNotExist(err) {
		t.Errorf("temporary file: %v, want not exist", err)
	}
}

// TestDamagedSegment: the others are read, and the error names it.
func TestDamagedSegment(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir)
	if err := os.WriteFile(sealedPath(dir, 7), []byte("not zstd"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.write(&life(time.Now())[0])
	got, err := h.List(Query{Limit: 10})
	if len(got) != 1 || err == nil {
		t.Errorf("List() = %d operations, %v, want 1 and an error", len(got), err)
	}
	closeHistory(t, h)
	if got, err := Read(filepath.Join(dir, "absent"), Query{Limit: 1}); len(got) != 0 || err != nil {
		t.Errorf("Read(absent) = %v, %v, want nothing", got, err)
	}
}

func TestQueries(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir)
	all := life(time.Now())
	all[1].Outcome, all[1].Error = operation.OutcomeTimeout, strings.Repeat("e", 2*maxError)
	all[2].Took = operation.Duration(time.Minute)
	all[0].Stages = make([]operation.Stage, 2*maxStages)
	for _, o := range all {
		h.Add(t.Context(), o)
	}
	wait(t, h, len(all))
	for name, c := range map[string]struct {
		q    Query
		want []int // in all, the newest first
	}{
		"all":          {Query{}, []int{6, 5, 4, 3, 2, 1, 0}},
		"limit":        {Query{Limit: 2}, []int{6, 5}},
		"failed":       {Query{Failed: true}, []int{1}},
		"slower":       {Query{Slower: time.Minute}, []int{2}},
		"verb":         {Query{Verb: operation.StopPod}, []int{4}},
		"pod":          {Query{About: all[0].Pod[:12]}, []int{6, 5, 4, 3, 2, 1, 0}},
		"container":    {Query{About: all[1].Container[:12]}, []int{5, 3, 2, 1}},
		"name":         {Query{About: all[1].Name}, []int{5, 3, 2, 1}},
		"another name": {Query{About: "other/web"}, nil},
	} {
		if c.q.Limit == 0 {
			c.q.Limit = 100
		}
		got, err := h.List(c.q)
		var verbs, want []string
		for _, o := range got {
			verbs = append(verbs, o.Verb)
		}
		for _, i := range c.want {
			want = append(want, all[i].Verb)
		}
		if d := cmp.Diff(want, verbs); d != "" || err != nil {
			t.Errorf("%s: %v, -want +got:\n%s", name, err, d)
		}
	}
	got, _ := h.List(Query{Limit: 100})
	if n, stages := len(got[5].Error), len(got[6].Stages); n != maxError || stages != maxStages {
		t.Errorf("error of %d bytes, %d stages, want them cut to %d and %d", n, stages, maxError, maxStages)
	}
	closeHistory(t, h)
}

// TestProbes: successful ExecSyncs are not recorded, and failed ones at most once a second.
func TestProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, t.TempDir())
		probe := operation.Operation{Verb: operation.ExecSync, Outcome: operation.OutcomeOK}
		h.Add(t.Context(), probe)
		probe.Outcome = operation.OutcomeTimeout
		for range 5 {
			h.Add(t.Context(), probe)
			h.Add(t.Context(), probe)
			time.Sleep(execInterval)
		}
		synctest.Wait()
		if got, err := h.List(Query{Limit: 100}); len(got) != 5 || err != nil {
			t.Errorf("%d ExecSyncs, %v, want 5", len(got), err)
		}
		closeHistory(t, h)
	})
}

// TestSessions: sessions are recorded, but not any number of them.
func TestSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, t.TempDir())
		for range maxBurst + 10 {
			h.Add(t.Context(), operation.Operation{Verb: operation.Exec, Outcome: operation.OutcomeOK})
		}
		time.Sleep(sessionInterval)
		h.Add(t.Context(), operation.Operation{Verb: operation.PortForward, Outcome: operation.OutcomeOK})
		synctest.Wait()
		if got, err := h.List(Query{Limit: 1000}); len(got) != maxBurst+1 || err != nil {
			t.Errorf("%d sessions, %v, want %d", len(got), err, maxBurst+1)
		}
		closeHistory(t, h)
	})
}

// TestAddDoesNotBlock: a disk that does not answer costs operations, not time.
func TestAddDoesNotBlock(t *testing.T) {
	log, lines := logtest.NewNullLogger()
	h, err := Open(t.TempDir(), log)
	if err != nil {
		t.Fatal(err)
	}
	h.mu.Lock() // the writer waits, as for a disk
	o := life(time.Now())[0]
	for range maxQueue + 100 {
		h.Add(context.Background(), o)
	}
	h.mu.Unlock()
	closeHistory(t, h)
	dropped := h.dropped.Load()
	for _, e := range lines.AllEntries() {
		n, _ := e.Data["operations"].(uint64)
		dropped += n
	}
	if dropped < 99 || dropped > 100 { // the writer may hold one
		t.Errorf("%d operations dropped, want 99 or 100", dropped)
	}
}

// TestWriteFails: nothing of a line that does not fit stays.
func TestWriteFails(t *testing.T) {
	h := open(t, t.TempDir())
	file := h.active.file
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	h.active.file = full
	if err := h.append([]byte("x\n")); err == nil {
		t.Error("append to a full disk succeeded")
	}
	h.active.file = file
	if h.active.size != 0 {
		t.Errorf("size = %d, want 0", h.active.size)
	}
	closeHistory(t, h)
	if err := full.Close(); err != nil {
		t.Error(err)
	}
}

func BenchmarkAdd(b *testing.B) {
	log, _ := logtest.NewNullLogger()
	h, err := Open(b.TempDir(), log)
	if err != nil {
		b.Fatal(err)
	}
	all := life(time.Now())
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		h.write(&all[i%len(all)]) // with the work of the goroutine, which Add does not wait for
	}
	b.StopTimer()
	if err := h.Close(); err != nil {
		b.Error(err)
	}
}
