package runc

import (
	"encoding/json"
	"os"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci/process"
	"github.com/podd-project/podd/oci/runc/starter"
)

// loaded is a new container whose config.json the runtime has read.
type loaded struct {
	r    *Runtime
	spec specs.Spec
	rec  record
}

// startedBy returns a handler with a starter, and a runtime of that version.
func startedBy(version string) *Runtime {
	r := ofVersion(version)
	r.cfg.Starter = "/libexec/starter"
	return r
}

// newLoaded returns a container without hooks of a runtime of that version.
func newLoaded(t *testing.T, version string) *loaded {
	t.Helper()
	self, err := process.Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	r := startedBy(version)
	r.cfg.RunDir = t.TempDir()
	return &loaded{r, specs.Spec{Linux: &specs.Linux{CgroupsPath: "/pod/c"}}, record{Init: self}}
}

// want writes the config.json and wants what podd does in place of the runtime.
func (l *loaded) want(t *testing.T, what string, method starter.Method, cgroup string) {
	t.Helper()
	b, err := l.r.bundle("c")
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(l.spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(b.Dir(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.Config(), data, 0o600); err != nil {
		t.Fatal(err)
	}
	if gotMethod, gotCgroup := l.r.withoutRuntime(b, l.rec); gotMethod != method || gotCgroup != cgroup {
		t.Errorf("%s: withoutRuntime = %q, %q, want %q, %q", what, gotMethod, gotCgroup, method, cgroup)
	}
}

// TestWithoutRuntimeOfVersion: only of releases whose source has been read.
func TestWithoutRuntimeOfVersion(t *testing.T) {
	for version, method := range map[string]starter.Method{
		"runc version 1.1.0":                  starter.Read,
		"runc version 1.1.5+ds1":              starter.Read,
		"runc version 1.1.12-0ubuntu2~22.04":  starter.Read,
		"runc version 1.2.9":                  starter.Read,
		"runc version 1.5.2":                  starter.Read,
		"runc version 1.0.3":                  "",
		"runc version 1.1.16":                 "",
		"runc version 1.2.0-rc.1":             "",
		"runc version 1.5.2+dev":              "",
		"runc version 1.5.3":                  starter.Read,
		"runc version 1.5.4":                  "",
		"runc version 1.6.0":                  "",
		"runc version 2.0.0-rc.1":             "",
		"runc version unknown":                "",
		"runc version 1":                      "",
		"crun version 1.8":                    starter.Write,
		"crun version 1.8.1":                  starter.Write,
		"crun version 1.28":                   starter.Write,
		"crun version 1.8.1.0.0.0.12-3856":    "",
		"crun version 1.28.1":                 "",
		"runc version 1.3.3-0ubuntu1~24.04.3": starter.Read,
		"runc version 1.3.0+20250101.gabc":    "",
		"runc version 1.3.0-3-g0123abc":       "",
		"crun version 1.7.2":                  "",
		"crun version 1.30":                   "",
		"crun version 2.0":                    "",
		"crun version UNKNOWN":                "",
		"crun version 1.5.2":                  "",
		"runsc version release-1.28":          "",
		"youki version 1.8.0":                 "",
		"":                                    "",
	} {
		cgroup := ""
		if method != "" {
			cgroup = "/pod/c"
		}
		newLoaded(t, version).want(t, version, method, cgroup)
	}
}

// TestWithoutRuntime: hooks and resources in config.json that only the runtime handles are left to it.
func TestWithoutRuntime(t *testing.T) {
	hook := []specs.Hook{{Path: "/bin/true"}}
	const read, cgroup = starter.Read, "/pod/c"
	for name, tt := range map[string]struct {
		change func(*loaded)
		method starter.Method
		cgroup string
	}{
		"nothing":   {func(*loaded) {}, read, cgroup},
		"poststart": {func(l *loaded) { l.spec.Hooks = &specs.Hooks{Poststart: hook} }, "", cgroup},
		"poststop":  {func(l *loaded) { l.spec.Hooks = &specs.Hooks{Poststop: hook} }, read, ""},
		"other hooks": {func(l *loaded) {
			l.spec.Hooks = &specs.Hooks{StartContainer: hook, CreateRuntime: hook}
		}, read, cgroup},
		"intelRdt":      {func(l *loaded) { l.spec.Linux.IntelRdt = &specs.LinuxIntelRdt{} }, read, ""},
		"systemd":       {func(l *loaded) { l.r.cfg.SystemdCgroup = true }, read, ""},
		"restored":      {func(l *loaded) { l.rec.Image = "/images" }, "", ""},
		"relative path": {func(l *loaded) { l.spec.Linux.CgroupsPath = "pod/c" }, read, ""},
		"unclean path":  {func(l *loaded) { l.spec.Linux.CgroupsPath = "//pod/./c/" }, read, cgroup},
		"no path":       {func(l *loaded) { l.spec.Linux.CgroupsPath = "" }, read, ""},
		"not Linux":     {func(l *loaded) { l.spec.Linux = nil }, read, ""},
		"dead already":  {func(l *loaded) { l.rec.Init.Start++ }, read, ""},
		"no starter":    {func(l *loaded) { l.r.cfg.Starter = "" }, "", cgroup},
	} {
		l := newLoaded(t, "runc version 1.5.2")
		tt.change(l)
		l.want(t, name, tt.method, tt.cgroup)
	}
	l := newLoaded(t, "runc version 1.5.2")
	b, err := l.r.bundle("none")
	if err != nil {
		t.Fatal(err)
	}
	if method, cgroup := l.r.withoutRuntime(b, l.rec); method != "" || cgroup != "" {
		t.Errorf("without config.json: withoutRuntime = %q, %q, want nothing", method, cgroup)
	}
}
