package runc_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/runc"
)

// dumpedOnce returns a container that was saved and is gone, and the request that restores it as another one.
func dumpedOnce(t *testing.T) (dumped, oci.CreateRequest) {
	t.Helper()
	d := newDumped(t)
	spec := d.m.Spec("true") // the images have the command
	var file []byte
	dir, err := d.dump(limit(t), func(context.Context) (err error) {
		file, err = os.ReadFile(d.file)
		return err
	})
	must(t, "dump", err)
	must(t, "delete", d.r.Delete(limit(t), d.id))
	// The container ran on after the dump. CRIU restores an open file only if it has the size that it had then.
	must(t, "file as it was", os.WriteFile(d.file, file, 0o600))
	d.id = "c2"
	t.Cleanup(func() { must(t, "delete", d.r.Delete(context.Background(), d.id)) })
	return d, oci.CreateRequest{ID: d.id, PodID: "p2", Name: "c2", Spec: spec, Image: filepath.Join(dir, oci.DumpImages)}
}

func (d dumped) wantState(want oci.Status) {
	d.Helper()
	if s, err := d.m.New().State(limit(d.T), d.id); err != nil || s.Status != want {
		d.Fatalf("state = %+v, %v, want %s", s, err, want)
	}
}

// oomScoreAdj is the file of the first process.
func (d dumped) oomScoreAdj() string {
	d.Helper()
	s, err := d.r.State(limit(d.T), d.id)
	must(d.T, "state", err)
	return fmt.Sprintf("/proc/%d/oom_score_adj", s.Process.Pid)
}

func (d dumped) wantOOMScoreAdj(want string) {
	d.Helper()
	if got, err := os.ReadFile(d.oomScoreAdj()); err != nil || strings.TrimSpace(string(got)) != want {
		d.Errorf("oom_score_adj = %q, %v, want %s, of config.json", got, err, want)
	}
}

// TestRestore: a container is created without a process, and its start restores the one that was saved, once.
func TestRestore(t *testing.T) {
	d, req := dumpedOnce(t)
	hostile := *req.Spec
	hostile.Mounts = append(slices.Clone(req.Spec.Mounts),
		specs.Mount{Destination: "/data", Source: t.TempDir(), Type: "bind", Options: []string{"bind"}})
	link := filepath.Join(req.Spec.Root.Path, "data")
	must(t, "link", os.Symlink("/x]:/etc", link))
	misread := req
	misread.Spec = &hostile
	if _, err := d.r.Create(limit(t), misread); !errdefs.IsPermissionDenied(err) {
		t.Errorf("a mount at a path that CRIU misreads: Create = %v, want %v", err, errdefs.ErrPermissionDenied)
	}
	must(t, "delete", d.r.Delete(limit(t), d.id))
	must(t, "remove link", os.Remove(link))
	req.Spec.Process.OOMScoreAdj = new(321)
	p, err := d.r.Create(limit(t), req)
	if err != nil || p.Pid != 0 {
		t.Fatalf("Create = %v, %v, want no process", p, err)
	}
	d.wantState(oci.Created)
	if err := d.r.Update(limit(t), d.id, nil); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("Update before the start = %v, want %v", err, errdefs.ErrFailedPrecondition)
	}
	must(t, "start", d.r.Start(limit(t), d.id))
	d.wantState(oci.Running)
	d.runs()
	d.wantOOMScoreAdj("321")
	if err := d.r.Start(limit(t), d.id); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("second Start = %v, want %v", err, errdefs.ErrFailedPrecondition)
	}
	d.runs()
	must(t, "kill", d.r.Signal(limit(t), d.id, 9))
	if exit, err := d.r.Wait(limit(t), d.id); err != nil || exit.Code != 137 {
		t.Errorf("exit = %+v, %v, want 137", exit, err)
	}
}

// TestRestoreFails: a start that fails leaves no process, and cannot be repeated.
func TestRestoreFails(t *testing.T) {
	d, req := dumpedOnce(t)
	must(t, "remove image", os.Remove(filepath.Join(req.Image, "inventory.img")))
	_, err := d.r.Create(limit(t), req)
	must(t, "create", err)
	err = d.r.Start(limit(t), d.id)
	if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "CRIU") {
		t.Errorf("Start without an image = %v, want %v, and what CRIU says", err, errdefs.ErrFailedPrecondition)
	}
	d.wantState(oci.Stopped)
	if got := members(t, req.Spec); len(got) > 0 {
		t.Errorf("processes after the failure: %v, want none", got)
	}
}

// TestRestoreOfKilledPodd: a podd that was killed in a start may have started no monitor: then the next one restores.
// It does not if there was a monitor.
func TestRestoreOfKilledPodd(t *testing.T) {
	d, req := dumpedOnce(t)
	req.Spec.Process.OOMScoreAdj = new(321)
	_, err := d.r.Create(limit(t), req)
	must(t, "create", err)
	mark := filepath.Join(d.m.Config.RunDir, d.id, "restoring")
	pid := filepath.Join(d.m.Config.RunDir, d.id, "conmon.pid")
	must(t, "mark", os.WriteFile(mark, nil, 0o600))
	must(t, "pid of a monitor that is gone", os.WriteFile(pid, []byte("4194304"), 0o600))
	d.wantState(oci.Stopped)
	must(t, "remove pid", os.Remove(pid))
	d.wantState(oci.Created)
	if _, err := os.Stat(mark); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("mark: %v, want it removed", err)
	}
	must(t, "start", d.r.Start(limit(t), d.id))
	d.runs()

	// A podd that is killed while it restores: its record has no process yet.
	must(t, "oom_score_adj of the images", os.WriteFile(d.oomScoreAdj(), []byte("7"), 0))
	record := filepath.Join(d.m.Config.RunDir, d.id, "state.json")
	var rec map[string]any
	must(t, "read record", driver.ReadRecord(record, &rec))
	process := rec["init"]
	delete(rec, "init")
	delete(rec, "monitor")
	must(t, "write record", driver.WriteRecord(record, rec))
	must(t, "forget the start", os.Remove(filepath.Join(d.m.Config.RunDir, d.id, "started")))
	d.r = d.m.New().(*runc.Runtime)
	d.wantState(oci.Running)
	d.wantOOMScoreAdj("321")
	must(t, "read record", driver.ReadRecord(record, &rec))
	if got, want := rec["init"].(map[string]any), process.(map[string]any); got["pid"] != want["pid"] {
		t.Errorf("process = %v, want %v", got, want)
	}
	d.runs()
}

// TestRestorePrivileges: images that give more than config.json are refused by Create.
func TestRestorePrivileges(t *testing.T) {
	d, req := dumpedOnce(t)
	req.Spec.Process.Capabilities.Bounding = nil
	req.Spec.Process.Capabilities.Effective, req.Spec.Process.Capabilities.Permitted = nil, nil
	if _, err := d.r.Create(limit(t), req); !errdefs.IsPermissionDenied(err) {
		t.Errorf("Create = %v, want %v", err, errdefs.ErrPermissionDenied)
	}
}
