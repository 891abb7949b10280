package preflight

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/podd-project/podd/oci/spec"
)

// finding returns the only finding about what.
func finding(t *testing.T, r Report, what string) Finding {
	t.Helper()
	var found []Finding
	for _, f := range r {
		if f.What == what {
			found = append(found, f)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d findings about %s, want 1: %v", len(found), what, r)
	}
	return found[0]
}

func TestDirectories(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	full := func(string) error { return errors.New("no space") }
	empty := func(string) error { return nil }
	for name, test := range map[string]struct {
		add  func(*Report)
		what string
		want Result
		text string
	}{
		"root is a file":       {func(r *Report) { r.Root(file, nil) }, "root", Problem, "not a directory"},
		"root below a file":    {func(r *Report) { r.Root(file+"/root", nil) }, "root", Problem, "not a directory"},
		"run is full":          {func(r *Report) { r.Run(dir, full) }, "run", Problem, "no space"},
		"run is to be made":    {func(r *Report) { r.Run(dir+"/a/b", empty) }, "run", "", ""},
		"run is on proc":       {func(r *Report) { r.Run("/proc/sys", empty) }, "run", Note, "not on a tmpfs"},
		"root has no space":    {func(r *Report) { r.Root("/proc/sys", nil) }, "root", Problem, "0 MiB free"},
		"root has no quotas":   {func(r *Report) { r.Root(dir, full) }, "root", Problem, "no space"},
		"controllers":          {func(r *Report) { r.cgroups(true, write(t, "cpu memory")) }, "cgroups", Problem, "pids"},
		"all controllers":      {func(r *Report) { r.cgroups(true, write(t, "cpu memory pids")) }, "cgroups", OK, ""},
		"cgroups version 1":    {func(r *Report) { r.cgroups(false, "") }, "cgroups", Note, "version 1"},
		"no overlay":           {func(r *Report) { r.overlay(write(t, "nodev\tproc\n")) }, "overlayfs", Note, "module"},
		"overlay":              {func(r *Report) { r.overlay(write(t, "nodev\toverlay\n")) }, "overlayfs", OK, ""},
		"forwarding is off":    {func(r *Report) { r.forwarding(write(t, "0\n")) }, "forwarding", Note, "ip_forward=1"},
		"no seccomp":           {func(r *Report) { r.Kernel(spec.Facts{}, true) }, "seccomp", Problem, "no seccomp"},
		"no Landlock":          {func(r *Report) { r.Kernel(spec.Facts{}, false) }, "Landlock", Problem, "files of the node"},
		"no right to anything": {func(r *Report) { r.Kernel(spec.Facts{}, true) }, "capabilities", Problem, "CAP_SYS_ADMIN"},
	} {
		t.Run(name, func(t *testing.T) {
			var r Report
			test.add(&r)
			f := finding(t, r, test.what)
			if test.want != "" && f.Result != test.want || !strings.Contains(f.Detail, test.text) {
				t.Errorf("finding = %+v, want %s with %q", f, test.want, test.text)
			}
		})
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPrint(t *testing.T) {
	var r Report
	r.Add(OK, "run", "%s", "/run/podd")
	r.Add(Problem, "handler runc", "is missing")
	var out strings.Builder
	if err := r.Print(&out); err != nil {
		t.Fatal(err)
	}
	if want := "ok       run           /run/podd\nproblem  handler runc  is missing\n"; out.String() != want {
		t.Errorf("Print wrote %q, want %q", out.String(), want)
	}
	if n := r.Problems(); n != 1 {
		t.Errorf("Problems() = %d, want 1", n)
	}
}
