package daemon

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/cmd/podd/settings"
)

func TestSpecReader(t *testing.T) {
	dir := t.TempDir()
	read := specReader(dir)
	for id, content := range map[string]string{"good": `{"ociVersion":"1.0.2"}`, "bad": `{`} {
		if err := os.MkdirAll(filepath.Join(dir, id), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, id, "config.json"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if spec, err := read("good"); err != nil || spec.Version != "1.0.2" {
		t.Errorf("read(good) = %v, %v, want version 1.0.2", spec, err)
	}
	if _, err := read("bad"); err == nil || errdefs.IsNotFound(err) {
		t.Errorf("read(bad) = %v, want an error other than not found", err)
	}
	if _, err := read("gone"); !errdefs.IsNotFound(err) {
		t.Errorf("read(gone) = %v, want not found", err)
	}
}

func TestCgroupDriver(t *testing.T) {
	if !settings.UseSystemdCgroup("systemd") || settings.UseSystemdCgroup("cgroupfs") {
		t.Error("settings.UseSystemdCgroup() is not the configured driver")
	}
	_, err := os.Stat("/run/systemd/system")
	if got, booted := settings.UseSystemdCgroup("auto"), err == nil; got != booted {
		t.Errorf("settings.UseSystemdCgroup(auto) = %v, want %v", got, booted)
	}
}

func TestPluginVersion(t *testing.T) {
	dir := t.TempDir()
	write := func(name, script string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	// The script prints what the CNI project's plugins print without CNI_COMMAND, and fails with it.
	t.Setenv("CNI_COMMAND", "ADD")
	bridge := write("bridge", "#!/bin/sh\n[ -z \"$CNI_COMMAND\" ] || exit 1\n"+
		"echo 'CNI bridge plugin v1.9.1' >&2\necho 'CNI protocol versions supported: 1.0.0' >&2\n")
	if v, err := pluginVersion(t.Context(), bridge); err != nil || v != "v1.9.1" {
		t.Errorf("pluginVersion(bridge) = %q, %v, want v1.9.1", v, err)
	}
	if v, err := pluginVersion(t.Context(), write("silent", "#!/bin/sh\n")); err != nil || v != "unknown" {
		t.Errorf("pluginVersion(silent) = %q, %v, want unknown", v, err)
	}
	if _, err := pluginVersion(t.Context(), write("broken", "#!/bin/sh\nexit 3\n")); err == nil {
		t.Error("pluginVersion() of a failing plugin succeeded, want an error")
	}
	if _, err := pluginVersion(t.Context(), filepath.Join(dir, "none")); err == nil {
		t.Error("pluginVersion() of an absent plugin succeeded, want an error")
	}
}

func TestLocate(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	for dir, mode := range map[string]os.FileMode{first: 0o644, second: 0o755} {
		if err := os.WriteFile(filepath.Join(dir, "runc"), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	dirs := []string{first, second}
	for name, want := range map[string]string{
		"runc": filepath.Join(second, "runc"), "crun": "crun", "/usr/bin/x": "/usr/bin/x",
	} {
		if got := locate(name, dirs); got != want {
			t.Errorf("locate(%s) = %s, want %s", name, got, want)
		}
	}
}
