package runc_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/ocitest"
	"github.com/podd-project/podd/oci/runc"
)

// dumped is a container that counts in a file of its root filesystem.
type dumped struct {
	*testing.T
	m    *ocitest.Machine
	r    *runc.Runtime
	id   string
	file string
}

func newDumped(t *testing.T) dumped {
	t.Helper()
	m := ocitest.Real(t, "runc")
	r := m.New().(*runc.Runtime)
	must(t, "probe", r.Probe(t.Context()))
	spec := m.Spec(sh("i=0; while true; do i=$((i+1)); echo $i > /tmp/n; sleep 0.05; done")...)
	start(t, r, oci.CreateRequest{ID: "c1", PodID: "p1", Name: "c1", Spec: spec})
	d := dumped{t, m, r, "c1", filepath.Join(m.Rootfs, "tmp/n")}
	d.runs()
	return d
}

// runs fails the test unless the container counts on.
func (d dumped) runs() {
	d.Helper()
	before, _ := os.ReadFile(d.file)
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if now, _ := os.ReadFile(d.file); len(now) > 0 && string(now) != string(before) {
			return
		}
	}
	s, err := d.r.State(limit(d.T), d.id)
	d.Fatalf("count = %s for 10 s, state %+v, %v, want the container to run", before, s, err)
}

func (d dumped) dump(ctx context.Context, frozen func(context.Context) error) (dir string, err error) {
	d.Helper()
	dir = d.TempDir()
	return dir, d.r.Dump(ctx, []oci.Dumped{{ID: d.id, Dir: dir}}, frozen)
}

// TestDump: the processes are saved at one moment, at which the container does nothing, and run on.
func TestDump(t *testing.T) {
	d := newDumped(t)
	if got := d.r.Features().Checkpoints; !got.Containers {
		t.Fatalf("checkpoints = %+v, want those of containers", got)
	}
	began := time.Now()
	dir, err := d.dump(limit(t), func(context.Context) error {
		before, _ := os.ReadFile(d.file)
		time.Sleep(200 * time.Millisecond)
		if after, _ := os.ReadFile(d.file); string(before) != string(after) {
			t.Errorf("count goes from %s to %s, want the container frozen", before, after)
		}
		return nil
	})
	must(t, "dump", err)
	t.Logf("took %v, 0.2 s of them for this test", time.Since(began))
	d.runs()
	for _, name := range []string{oci.DumpLog, oci.DumpStats, oci.DumpImages + "/inventory.img"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Errorf("%v, want it written", err)
		}
	}
	_, err = d.dump(limit(t), func(context.Context) error { return nil })
	must(t, "second dump", err)
	d.runs()
}

// TestDumpAfterStart: a dump right after the start waits until the container's command runs, which hooks delay here.
func TestDumpAfterStart(t *testing.T) {
	m := ocitest.Real(t, "runc")
	r := m.New().(*runc.Runtime)
	must(t, "probe", r.Probe(t.Context()))
	spec := m.Spec(sh("sleep 1000")...)
	spec.Hooks = &specs.Hooks{StartContainer: []specs.Hook{{Path: "/bin/sh", Args: []string{"sh", "-c", "sleep 0.5"}}}}
	start(t, r, oci.CreateRequest{ID: "c1", PodID: "p1", Name: "c1", Spec: spec})
	frozen := func(context.Context) error { return nil }
	must(t, "dump", r.Dump(limit(t), []oci.Dumped{{ID: "c1", Dir: t.TempDir()}}, frozen))
}

// TestDumpFails: whatever fails, the container runs on.
func TestDumpFails(t *testing.T) {
	d := newDumped(t)
	broken := errors.New("broken")
	if _, err := d.dump(limit(t), func(context.Context) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("Dump = %v, want %v", err, broken)
	}
	d.runs()
	for _, after := range []time.Duration{20, 60, 120, 250} { // milliseconds
		ctx, cancel := context.WithTimeout(t.Context(), after*time.Millisecond)
		_, err := d.dump(ctx, func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) })
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Dump with a deadline after %v ms = %v, want %v", int(after), err, context.DeadlineExceeded)
		}
		d.runs()
	}
	if err := d.r.Dump(t.Context(), []oci.Dumped{{ID: d.id, Dir: t.TempDir()}}, nil); !errdefs.IsInvalidArgument(err) {
		t.Errorf("Dump without a deadline = %v, want %v", err, errdefs.ErrInvalidArgument)
	}
	if _, err := d.dump(limit(t), func(context.Context) error { return nil }); err != nil {
		t.Errorf("Dump after those that failed = %v, want nil", err)
	}
	d.runs()
}

// TestDumpOnFullDisk: the error says so, and the container runs on.
func TestDumpOnFullDisk(t *testing.T) {
	d, dir := newDumped(t), t.TempDir()
	must(t, "mount", unix.Mount("tmpfs", dir, "tmpfs", 0, "nr_inodes=20,mode=0700"))
	t.Cleanup(func() { must(t, "unmount", unix.Unmount(dir, unix.MNT_DETACH)) })
	err := d.r.Dump(limit(t), []oci.Dumped{{ID: d.id, Dir: dir}}, func(context.Context) error { return nil })
	if !errdefs.IsResourceExhausted(err) || !strings.Contains(err.Error(), "no space") {
		t.Errorf("Dump = %v, want %v that says no space", err, errdefs.ErrResourceExhausted)
	}
	d.runs()
}

// TestDumpWithoutRoom: what does not fit where it is written, or where the caller puts it then, is refused before the
// container is frozen.
func TestDumpWithoutRoom(t *testing.T) {
	d, small, large := newDumped(t), t.TempDir(), t.TempDir()
	must(t, "mount", unix.Mount("tmpfs", small, "tmpfs", 0, "size=8k,mode=0700"))
	t.Cleanup(func() { must(t, "unmount", unix.Unmount(small, unix.MNT_DETACH)) })
	for want, c := range map[string]oci.Dumped{
		"destination": {ID: d.id, Dir: large, Room: 1}, small: {ID: d.id, Dir: small},
	} {
		err := d.r.Dump(limit(t), []oci.Dumped{c}, func(context.Context) error { return nil })
		if !errdefs.IsResourceExhausted(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("Dump = %v, want %v for %s", err, errdefs.ErrResourceExhausted, want)
		}
		if names, err := os.ReadDir(c.Dir); len(names) > 0 || err != nil {
			t.Errorf("CRIU has written %v, %v, want it not to be called", names, err)
		}
	}
	d.runs()
}

// TestExecWaitsForDump: a probe does not fail because the container is frozen.
func TestExecWaitsForDump(t *testing.T) {
	d := newDumped(t)
	frozen, done := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := d.dump(limit(t), func(context.Context) error {
			close(frozen)
			time.Sleep(3 * time.Second)
			return nil
		})
		done <- err
	}()
	select {
	case <-frozen:
	case err := <-done:
		t.Fatalf("Dump = %v before the container was frozen", err)
	}
	_, err := d.r.ExecSync(limit(t), oci.ExecRequest{
		ID: d.id, Process: d.m.Spec("true").Process, Timeout: 2500 * time.Millisecond, Limit: 100,
	})
	if err != nil {
		t.Errorf("ExecSync during a dump = %v, want nil", err)
	}
	must(t, "dump", <-done)
}
