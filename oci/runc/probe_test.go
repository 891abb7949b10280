package runc

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci/driver"
)

func TestAtLeast(t *testing.T) {
	for _, tt := range []struct {
		version, least string
		want           bool
	}{
		{"conmon version 2.1.6", "2.1.6", true},
		{"conmon version 2.1.12", "2.1.6", true},
		{"conmon version 2.2.0-dev", "2.1.6", true},
		{"conmon version 3", "2.1.6", true},
		{"conmon version 2.1.5", "2.1.6", false},
		{"conmon version 2.0.99", "2.1.6", false},
		{"conmon version ", "2.1.6", false},
		{"conmon version x.y.z", "2.1.6", false},
		{"something else 9.9.9", "2.1.6", false},
		{"", "2.1.6", false},
	} {
		if got := atLeast(tt.version, "conmon version ", tt.least); got != tt.want {
			t.Errorf("atLeast(%q, %s) = %v, want %v", tt.version, tt.least, got, tt.want)
		}
	}
}

func TestParseFeatures(t *testing.T) {
	yes := `{"ociVersionMax":"1.2.0","mountOptions":["ro","rro"],` +
		`"linux":{"namespaces":["user"],"mountExtensions":{"idmap":{"enabled":true}}},"newThing":{"a":1}}`
	if f := parseFeatures([]byte(yes)); f.OCIVersionMax != "1.2.0" || !slices.Contains(f.MountOptions, "rro") ||
		!supportsIDMap(f) {
		t.Errorf("features = %+v, want 1.2.0, rro and idmapped mounts", f)
	}
	for _, no := range []string{
		"", "nonsense", "{}", `{"linux":{}}`, `{"linux":{"mountExtensions":{"idmap":{}}}}`,
		`{"linux":{"mountExtensions":{"idmap":{"enabled":false}}}}`,
		`{"linux":{"namespaces":["pid"],"mountExtensions":{"idmap":{"enabled":true}}}}`,
	} {
		if f := parseFeatures([]byte(no)); supportsIDMap(f) {
			t.Errorf("%s: idmapped mounts are supported, want not", no)
		}
	}
	// One field of a wrong type spoils nothing before it.
	if f := parseFeatures([]byte(`{"ociVersionMax":"1.1.0","mountOptions":7}`)); f.OCIVersionMax != "1.1.0" {
		t.Errorf("features = %+v, want version 1.1.0", f)
	}
}

func FuzzParseFeatures(f *testing.F) {
	f.Add([]byte(`{"linux":{"mountExtensions":{"idmap":null}}}`))
	f.Fuzz(func(t *testing.T, b []byte) { supportsIDMap(parseFeatures(b)) })
}

// program writes a script that answers --version, and else exits with an error.
func program(t *testing.T, dir, name, version string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	text := "#!/bin/sh\n[ \"$1\" = --version ] && { echo '" + version + "'; echo more; exit 0; }\n" +
		"echo unknown command >&2; exit 1\n"
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestInstalledLater: a handler that was not ready is, some seconds after its binaries appear.
func TestInstalledLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		r := New(Config{Name: "late", Path: "rt", SearchPath: []string{"/no/such", dir}, Root: dir, RunDir: dir})
		if err := r.Ready(); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), dir) {
			t.Fatalf("ready = %v, want an unavailable error that names %s", err, dir)
		}
		program(t, dir, "rt", "rt version 1.0")
		program(t, dir, "conmon", "conmon version 2.1.7")
		if err := r.Ready(); err == nil {
			t.Error("Ready probed again at once, want the kept error")
		}
		time.Sleep(driver.ProbeTimeout)
		if err := r.Ready(); err != nil {
			t.Fatalf("ready: %v", err)
		}
		if f := r.Features(); f.Version != "rt version 1.0" || f.OCIVersion != driver.FallbackOCIVersion ||
			f.RecursiveReadOnly || f.UserNamespaces {
			t.Errorf("features of a runtime without the features command = %+v, want the defaults", f)
		}
	})
}

// TestHostNetwork: only gVisor's option of that name and value opens the node's network to pods.
func TestHostNetwork(t *testing.T) {
	dir := t.TempDir()
	monitor := program(t, dir, "conmon", "conmon version 2.1.7")
	for name, tt := range map[string]struct {
		version string
		options map[string]string
		want    bool
	}{
		"gVisor":               {"runsc version release-20260905.0", nil, false},
		"its own stack":        {"runsc version release-20260905.0", map[string]string{"network": "sandbox"}, false},
		"the host's":           {"runsc version release-20260905.0", map[string]string{"network": "host"}, true},
		"on the host's kernel": {"runc version 1.5.2", map[string]string{"network": "host"}, false},
	} {
		r := New(Config{
			Name: "h", Path: program(t, dir, "rt", tt.version), Conmon: monitor, Root: dir, RunDir: dir,
			InitProxy: "/x", Options: tt.options,
		})
		if f := r.Features(); f.HostNetwork != tt.want {
			t.Errorf("%s: HostNetwork = %v, want %v", name, f.HostNetwork, tt.want)
		}
	}
}

func TestOldMonitor(t *testing.T) {
	dir := t.TempDir()
	r := New(Config{
		Name: "old", Path: program(t, dir, "rt", "rt 1"),
		Conmon: program(t, dir, "conmon", "conmon version 2.0.30"), Root: dir, RunDir: dir,
	})
	err := r.Probe(t.Context())
	if err == nil || !strings.Contains(err.Error(), "2.0.30") || !strings.Contains(err.Error(), "2.1.6") {
		t.Errorf("probe = %v, want an error that names 2.0.30 and 2.1.6", err)
	}
	if got := r.Ready(); !errors.Is(got, err) {
		t.Errorf("ready = %v, want %v", got, err)
	}
}

func TestLookup(t *testing.T) {
	dir := t.TempDir()
	path := program(t, dir, "rt", "1")
	if err := os.WriteFile(filepath.Join(dir, "plain"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r := New(Config{Name: "h", SearchPath: []string{"relative", dir}})
	for name, want := range map[string]string{
		"rt": path, path: path, "plain": "", filepath.Join(dir, "plain"): "", dir: "", "": "", "sh": "",
	} {
		got, err := r.lookup(name)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("lookup(%q) = %q, %v, want %q", name, got, err, want)
		}
	}
}

func TestKernelProbes(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("idmapped mounts need root")
	}
	// Linux 6.3 and later, which the tests need anyway, can do both.
	if !driver.KernelRecursiveReadOnly() || !driver.KernelIDMap(t.TempDir()) {
		t.Errorf("recursive read-only: %v, idmap: %v, want both",
			driver.KernelRecursiveReadOnly(), driver.KernelIDMap(t.TempDir()))
	}
}
