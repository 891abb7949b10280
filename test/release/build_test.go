package release

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// version is that of the packages under test, previous the one that upgrades start from. They differ in their version
// only.
const version, previous = "0.9.1", "0.9.0"

// built is the directory of the release under test, scratch one that is removed at the end.
var built, scratch string

// TestMain builds the release of the commit that is checked out, once. RELEASE names one that was built before.
func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if scratch, err = os.MkdirTemp("", "podd-release-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(scratch)
		if built = os.Getenv("RELEASE"); built != "" {
			return m.Run()
		}
		built = filepath.Join(scratch, "release")
		if out, err := build(context.Background(), "../..", built, version); err != nil {
			fmt.Fprintf(os.Stderr, "build the release: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// before returns the directory of the release that upgrades start from, for amd64 only. RELEASE_BEFORE names one that
// was built before.
func before(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("RELEASE_BEFORE"); dir != "" {
		return dir
	}
	dir := filepath.Join(scratch, "before")
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	if out, err := build(t.Context(), "../..", dir, previous, "ARCHITECTURES=amd64"); err != nil {
		t.Fatalf("build %s: %v\n%s", previous, err, out)
	}
	return dir
}

// build runs contrib/release/build.sh of a checkout. Env is added to the environment.
func build(ctx context.Context, checkout, out, version string, env ...string) (string, error) {
	return shell(ctx, append(env, "VERSION=v"+version, "OUT="+out, "CHECKOUT="+checkout),
		`"$CHECKOUT/contrib/release/build.sh" "$OUT"`)
}

// shell runs a script and returns what it printed.
func shell(ctx context.Context, env []string, script string) (string, error) {
	cmd := exec.CommandContext(ctx, "sh", "-euc", script)
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = 10 * time.Second // for what a failed script left in the background
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// run is shell for a step of a test that must succeed.
func run(t *testing.T, env []string, script string) string {
	t.Helper()
	out, err := shell(t.Context(), env, script)
	if err != nil {
		t.Fatalf("%s\n%v\n%s", script, err, out)
	}
	return out
}

// file returns the path of a file of the release.
func file(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(built, name)
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	return path
}

func deb(t *testing.T, arch string) string { return file(t, "podd_"+version+"-1_"+arch+".deb") }

// TestSameBits builds the commit again, elsewhere and with another environment. Nothing of the first build is reused
// but the downloaded modules.
func TestSameBits(t *testing.T) {
	dir := t.TempDir()
	checkout := filepath.Join(dir, "a checkout")
	run(t, []string{"CHECKOUT=" + checkout}, `git clone -q --no-local ../.. "$CHECKOUT"`)
	again := filepath.Join(dir, "again")
	cache, err := os.MkdirTemp("", "podd-gocache-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(cache)
	out, err := build(t.Context(), checkout, again, version,
		"GOCACHE="+cache, "TZ=Asia/Tokyo", "LC_ALL=C.UTF-8", "GOFLAGS=-p=1 -trimpath=false", "CFLAGS=-g", "HOSTNAME=other")
	if err != nil {
		t.Fatalf("second build: %v\n%s", err, out)
	}
	if diff := run(t, []string{"A=" + built, "B=" + again}, `diff -r "$A" "$B" || :`); diff != "" {
		t.Errorf("the second build differs:\n%s", diff)
	}
}

// TestRelease checks which files a release has, and their checksums.
func TestRelease(t *testing.T) {
	run(t, []string{"DIR=" + built}, `cd "$DIR" && sha256sum --quiet -c SHA256SUMS`)
	var names []string
	entries, err := os.ReadDir(built)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	want := strings.Fields(strings.ReplaceAll(`SHA256SUMS podd-VERSION-1.aarch64.rpm podd-VERSION-1.x86_64.rpm
		podd-VERSION-linux-amd64.cdx.json podd-VERSION-linux-amd64.tar.gz
		podd-VERSION-linux-arm64.cdx.json podd-VERSION-linux-arm64.tar.gz
		podd_VERSION-1_amd64.deb podd_VERSION-1_arm64.deb`, "VERSION", version))
	if got := strings.Join(names, " "); got != strings.Join(want, " ") {
		t.Errorf("the release has %s, want %s", got, strings.Join(want, " "))
	}
}

// TestArchive: what is in the tar is an installation below /usr/local, with the unit's path of the binary.
func TestArchive(t *testing.T) {
	dir := t.TempDir()
	run(t, []string{"TAR=" + file(t, "podd-"+version+"-linux-amd64.tar.gz"), "DIR=" + dir},
		`tar -C "$DIR" --strip-components=1 -xf "$TAR"`)
	for _, path := range []string{
		"bin/podd", "lib/systemd/system/podd.service", "share/man/man8/podd.8.gz", "share/man/man5/podd.toml.5.gz",
		"share/bash-completion/completions/podd", "share/podd/crictl.yaml", "share/doc/podd/LICENSE",
		"share/doc/podd/licenses.gz", "share/doc/podd/podd.cdx.json", "share/doc/podd/contrib/podd.toml",
	} {
		if _, err := os.Stat(filepath.Join(dir, path)); err != nil {
			t.Error(err)
		}
	}
	commit := strings.TrimSpace(run(t, nil, "git rev-parse HEAD"))
	got := run(t, []string{"PODD=" + filepath.Join(dir, "bin/podd")}, `"$PODD" version; ldd "$PODD" 2>&1 || :`)
	for _, want := range []string{"podd     v" + version, "commit   " + commit, "not a dynamic executable"} {
		if !strings.Contains(got, want) && os.Getenv("RELEASE") == "" {
			t.Errorf("podd version and ldd printed %q, want %q in it", got, want)
		}
	}
}
