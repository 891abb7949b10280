package release

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// TestLintian: Debian's checker finds no error in the debs.
func TestLintian(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		out, err := shell(t.Context(), []string{"DEB=" + deb(t, arch)}, `lintian --allow-root --fail-on error "$DEB"`)
		t.Log(out)
		if err != nil {
			t.Errorf("lintian of %s: %v", arch, err)
		}
	}
}

// TestRPM installs the rpm into an empty directory, verifies and removes it, with Debian's rpm. What it depends on is
// not there, and its scripts, which need a shell, are not run.
func TestRPM(t *testing.T) {
	for name, arch := range map[string]string{"x86_64": "amd64", "aarch64": "arm64"} {
		t.Run(arch, func(t *testing.T) {
			rpm := file(t, "podd-"+version+"-1."+name+".rpm")
			root := t.TempDir()
			out := run(t, []string{"RPM=" + rpm, "ROOT=" + root}, `
				rpm -K --nosignature "$RPM"
				rpm -qpl "$RPM"
				rpm --root "$ROOT" --initdb
				rpm --root "$ROOT" -i --test --nodeps --noscripts --ignorearch "$RPM"
				rpm --root "$ROOT" -i --nodeps --noscripts --ignorearch "$RPM"
				rpm --root "$ROOT" -V --nodeps --noscripts podd
				rpm --root "$ROOT" -e --noscripts podd
				find "$ROOT" -name '*podd*'`)
			for _, want := range []string{
				"digests OK", "/usr/bin/podd", "/usr/lib/systemd/system/podd.service", "/usr/share/man/man8/podd.8.gz",
				"/usr/share/zsh/site-functions/_podd", "/usr/share/licenses/podd/LICENSE", "/etc/podd/podd.toml.d",
			} {
				if !strings.Contains(out, want) {
					t.Errorf("%q is not in the output of rpm:\n%s", want, out)
				}
			}
			if strings.Contains(out, root) {
				t.Errorf("rpm -e left files:\n%s", out)
			}
		})
	}
}

// TestComponents: the list of components names podd's direct dependencies, the standard library and the C library.
func TestComponents(t *testing.T) {
	raw, err := os.ReadFile(file(t, "podd-"+version+"-linux-arm64.cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var bom struct {
		Format     string `json:"bomFormat"`
		Components []struct {
			Name string `json:"name"`
			URL  string `json:"purl"`
		} `json:"components"`
	}
	if err := json.Unmarshal(raw, &bom); err != nil || bom.Format != "CycloneDX" {
		t.Fatalf("bomFormat = %q, error %v, want CycloneDX", bom.Format, err)
	}
	found := map[string]bool{}
	for _, c := range bom.Components {
		found[c.Name] = c.URL != ""
	}
	for _, want := range []string{"std", "libc6-dev-arm64-cross", "go.podman.io/storage", "k8s.io/cri-api"} {
		if !found[want] {
			t.Errorf("%s is not among the %d components", want, len(found))
		}
	}
}

// TestARM64 runs the arm64 binary, and the tests of packages that touch nothing on the machine, under QEMU's emulation
// of a process.
func TestARM64(t *testing.T) {
	dir := t.TempDir()
	out := run(t, []string{"DEB=" + deb(t, "arm64"), "DIR=" + dir}, `
		dpkg-deb -x "$DEB" "$DIR"
		qemu-aarch64-static "$DIR/usr/bin/podd" version
		qemu-aarch64-static "$DIR/usr/bin/podd" config default | cmp - ../../contrib/podd.toml`)
	if !strings.Contains(out, "linux/arm64") {
		t.Errorf("podd version printed %q, want linux/arm64 in it", out)
	}
	// The skipped test starts itself, which the kernel alone cannot do.
	run(t, []string{"GOARCH=arm64", "CGO_ENABLED=0"}, `cd ../..
		go test -p 1 -exec qemu-aarch64-static -tags containers_image_openpgp,nri_no_wasm,grpcnotrace \
			-skip TestLockNamesItsHolder ./checkpoint ./cmd/podd/preflight ./cmd/podd/tomlconfig ./oci/spec ./sandbox/convert`)
}
