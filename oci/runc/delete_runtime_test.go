package runc_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/ocitest"
)

// cgroupsOf lists the container's directories in all hierarchies.
func cgroupsOf(s *specs.Spec) []string {
	v1, _ := filepath.Glob("/sys/fs/cgroup/*" + s.Linux.CgroupsPath)
	v2, _ := filepath.Glob("/sys/fs/cgroup" + s.Linux.CgroupsPath)
	return append(v1, v2...)
}

// wantDeleted wants nothing left of the container: the runtime's state, its cgroups, its bundle.
func wantDeleted(t *testing.T, m *ocitest.Machine, id string, s *specs.Spec) {
	t.Helper()
	for _, dir := range []string{m.Config.Root, m.Config.RunDir} {
		if path := filepath.Join(dir, id); driver.FileExists(path) {
			t.Errorf("left: %s", path)
		}
	}
	if left := cgroupsOf(s); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestDeleteWithoutRuntime deletes containers in every state, with cgroups below their own, without the runtime.
func TestDeleteWithoutRuntime(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		called, r := mark(t, m, "delete"), m.New()
		for _, id := range []string{"created", "running", "paused", "exited"} {
			s := m.Spec("sleep", "1000")
			if id == "exited" {
				s = m.Spec("true")
			}
			create(t, r, id, s)
			if id != "created" {
				must(t, "start", r.Start(limit(t), id))
			}
			switch id {
			case "paused":
				must(t, "pause", r.Pause(limit(t), id))
			case "exited":
				_, err := r.Wait(limit(t), id)
				must(t, "wait", err)
			}
			made := cgroupsOf(s)
			for _, dir := range made {
				must(t, "make a cgroup below", os.MkdirAll(filepath.Join(dir, "below/deeper"), 0o755))
			}
			if must(t, "delete", m.New().Delete(limit(t), id)); called() {
				t.Errorf("%s: the runtime's delete was run, want not", id)
			}
			if wantDeleted(t, m, id, s); len(made) == 0 {
				t.Error("no cgroup was made, so this tests nothing")
			}
		}
	})
}

// TestDeleteByRuntime: the runtime deletes what podd does not know to be able to remove, and runs the hooks.
func TestDeleteByRuntime(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		hooked, called := filepath.Join(m.LogDir, "hooked"), mark(t, m, "delete")
		for id, damage := range map[string]func(record map[string]any){
			"poststop":  func(map[string]any) {},
			"earlier":   func(record map[string]any) { delete(record, "cgroup") },
			"elsewhere": func(record map[string]any) { record["cgroup"] = "/elsewhere" },
			"old-boot":  func(record map[string]any) { record["boot"] = "another" },
		} {
			s := m.Spec("true")
			if id == "poststop" {
				s.Hooks = &specs.Hooks{Poststop: []specs.Hook{{Path: "/bin/sh", Args: []string{"sh", "-c", "echo >" + hooked}}}}
			}
			r := m.New()
			create(t, r, id, s)
			must(t, "start", r.Start(limit(t), id))
			_, err := r.Wait(limit(t), id)
			must(t, "wait", err)
			changeRecord(t, filepath.Join(m.Config.RunDir, id, "state.json"), damage)
			if must(t, "delete", m.New().Delete(limit(t), id)); !called() {
				t.Errorf("%s: the runtime's delete was not run", id)
			}
			if ran := os.Remove(hooked) == nil; ran != (id == "poststop") {
				t.Errorf("%s: the hook has run: %v", id, ran)
			}
			wantDeleted(t, m, id, s)
		}
	})
}

// changeRecord changes a container's record.
func changeRecord(t *testing.T, path string, change func(map[string]any)) {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, "read", err)
	record := map[string]any{}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber() // start times
	must(t, "decode", decoder.Decode(&record))
	change(record)
	data, err = json.Marshal(record)
	must(t, "encode", err)
	must(t, "write", os.WriteFile(path, data, 0o600))
}

// TestDeleteInterrupted: podd was killed when it had removed a part. The next one removes the rest.
func TestDeleteInterrupted(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		called, r := mark(t, m, "delete"), m.New()
		for i, done := range []func(s *specs.Spec, id string) error{
			func(_ *specs.Spec, id string) error { return os.RemoveAll(filepath.Join(m.Config.Root, id)) },
			func(_ *specs.Spec, id string) error { // a part of the state
				files, _ := filepath.Glob(filepath.Join(m.Config.Root, id, "*"))
				return os.Remove(files[0])
			},
			func(s *specs.Spec, id string) error {
				for _, dir := range cgroupsOf(s)[1:] {
					if err := os.Remove(dir); err != nil {
						return err
					}
				}
				return os.RemoveAll(filepath.Join(m.Config.Root, id))
			},
		} {
			id, s := fmt.Sprint("c", i), m.Spec("true")
			create(t, r, id, s)
			must(t, "start", r.Start(limit(t), id))
			_, err := r.Wait(limit(t), id)
			must(t, "wait", err)
			must(t, "remove a part", done(s, id))
			if must(t, "delete", m.New().Delete(limit(t), id)); called() {
				t.Errorf("%d: the runtime's delete was run, want not", i)
			}
			wantDeleted(t, m, id, s)
		}
	})
}

// TestStateCannotBeRemoved: the error is not lost, and the next Delete succeeds.
func TestStateCannotBeRemoved(t *testing.T) {
	m := ocitest.Real(t, "runc")
	r := m.New()
	create(t, r, "c", m.Spec("true"))
	busy := filepath.Join(m.Config.Root, "c", "busy")
	must(t, "mkdir", os.Mkdir(busy, 0o700))
	must(t, "mount", unix.Mount("none", busy, "tmpfs", 0, ""))
	if err := r.Delete(limit(t), "c"); err == nil || !strings.Contains(err.Error(), "busy") {
		t.Errorf("delete = %v, want an error with the file's name", err)
	}
	must(t, "unmount", unix.Unmount(busy, 0))
	must(t, "delete again", r.Delete(limit(t), "c"))
	if s, err := r.State(limit(t), "c"); err != nil || s.Status != oci.Absent {
		t.Errorf("state = %+v, %v, want %s", s, err, oci.Absent)
	}
}
