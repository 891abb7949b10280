package images

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// critestNames are the images that critest v1.36.0 names in pkg/framework and pkg/validate.
var critestNames = []string{
	"e2e-test-images/busybox:1.29-2", "e2e-test-images/nginx:1.14-2", "e2e-test-images/httpd:2.4.39-4",
	"e2e-test-images/nonewprivs:1.3", "pause:3.9", "k8s-staging-cri-tools/hostnet-nginx-" + runtime.GOARCH + ":latest",
	"k8s-staging-cri-tools/test-image-user-uid:latest", "k8s-staging-cri-tools/test-image-user-username:latest",
	"k8s-staging-cri-tools/test-image-user-uid-group:latest",
	"k8s-staging-cri-tools/test-image-user-username-group:latest",
	"k8s-staging-cri-tools/test-image-predefined-group:latest", "k8s-staging-cri-tools/test-image-latest:latest",
	"k8s-staging-cri-tools/test-image-tag:test", "k8s-staging-cri-tools/test-image-tag:all",
	"k8s-staging-cri-tools/test-image-1:latest", "k8s-staging-cri-tools/test-image-2:latest",
	"k8s-staging-cri-tools/test-image-3:latest", "k8s-staging-cri-tools/test-image-tags:1",
	"k8s-staging-cri-tools/test-image-tags:2", "k8s-staging-cri-tools/test-image-tags:3",
}

func TestEveryImageOfCritestIsThere(t *testing.T) {
	path, err := Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	names, err := Names(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range critestNames {
		if !slices.Contains(names, want) {
			t.Errorf("the layout has no image %s, want one", want)
		}
	}
}

func TestTheSameSourcesGiveTheSameDigests(t *testing.T) {
	path, err := Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cache, err := CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	parts, err := gather(t.Context(), filepath.Join(cache, "debs"), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	again := &catalog{parts: parts}
	again.critest() // the others are built in the same way and take long
	if again.err != nil {
		t.Fatal(again.err)
	}
	want := digests(t, path)
	for _, it := range again.items {
		d, err := it.image.Digest()
		if err != nil {
			t.Fatal(err)
		}
		if want[it.names[0]] != d.String() {
			t.Errorf("digest of %s = %s, want %s as in the first build", it.names[0], d, want[it.names[0]])
		}
	}
	if want["pause:3.9"] == want["pause:3.10"] {
		t.Error("pause:3.9 is the same image as pause:3.10; critest would remove both")
	}
	if want["k8s-staging-cri-tools/test-image-1:latest"] == want["k8s-staging-cri-tools/test-image-2:latest"] {
		t.Error("test-image-1 and test-image-2 are the same image")
	}
}

func digests(t *testing.T, path layout.Path) map[string]string {
	t.Helper()
	list, err := descriptors(path)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]string{}
	for _, d := range list {
		m[d.Annotations[refName]] = d.Digest.String()
	}
	return m
}

func TestExport(t *testing.T) {
	path, err := Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "out")
	if err := Export(path, "e2e-test-images/busybox:1.29-2", "example.com/demo:1", dir); err != nil {
		t.Fatal(err)
	}
	out, err := layout.FromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := digests(t, out); len(got) != 1 || got["example.com/demo:1"] == "" {
		t.Errorf("exported images = %v, want only example.com/demo:1", got)
	}
	if err := Export(path, "no/such:image", "x:1", filepath.Join(t.TempDir(), "x")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("export of an unknown image = %v, want ErrNotExist", err)
	}
}

// extract writes an image's files below a new directory, as a runtime would see them.
func extract(t *testing.T, r *Registry, image string) string {
	t.Helper()
	img, err := remote.Image(reference(t, r, image), remote.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	rc := mutate.Extract(img)
	defer rc.Close()
	for tr := tar.NewReader(rc); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return root
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := unpack(root, h, tr); err != nil {
			t.Fatal(err)
		}
	}
}

func unpack(root string, h *tar.Header, r io.Reader) error {
	path := filepath.Join(root, h.Name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return os.MkdirAll(path, h.FileInfo().Mode().Perm())
	case tar.TypeSymlink:
		return os.Symlink(h.Linkname, path)
	case tar.TypeLink:
		return os.Link(filepath.Join(root, h.Linkname), path)
	case tar.TypeReg:
		data, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return err
		}
		return os.Chmod(path, h.FileInfo().Mode()) // with the setuid bit
	}
	return nil
}

// inRoot runs a command with the extracted image as its root.
func inRoot(t *testing.T, root string, command ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Path = command[0]
	cmd.Err = nil // the path is resolved inside the root
	cmd.Dir = "/"
	cmd.Env = env
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestBusyboxIsWhatCritestNeeds(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("chroot needs root")
	}
	root := extract(t, Serve(t), "e2e-test-images/busybox:1.29-2")
	for _, c := range []struct{ command, want string }{
		{"echo -n hello", "hello"},
		{"id -u", "0\n"},
		{"id -nu", "root\n"},
		{"ls -A /var", "log\nrun\nwww\n"},
		{"brctl --help 2>&1 | head -n1 | cut -c1-7", "BusyBox\n"},
	} {
		out, err := inRoot(t, root, "/bin/sh", "-c", c.command)
		if err != nil || out != c.want {
			t.Errorf("%s = %q, %v, want %q", c.command, out, err, c.want)
		}
	}
	for _, tool := range []string{"/bin/top", "/bin/netstat", "/bin/ping", "/bin/hostname", "/bin/ipcs", "/bin/pgrep",
		"/bin/pidof"} {
		if _, err := os.Stat(root + tool); err != nil {
			t.Errorf("no %s: %v", tool, err)
		}
	}

	// A shell that runs applets itself would not notice that ls is masked.
	if err := os.Remove(root + "/bin/ls"); err != nil {
		t.Fatal(err)
	}
	if out, err := inRoot(t, root, "/bin/sh", "-c", "ls"); err == nil || !strings.Contains(out, "not found") {
		t.Errorf("ls without /bin/ls = %q, %v, want not found", out, err)
	}
}

func TestTheServersRun(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("chroot needs root")
	}
	r := Serve(t)
	root := extract(t, r, "e2e-test-images/nginx:1.14-2")
	if err := os.WriteFile(root+"/dev/stdout", nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(root+"/dev/stderr", nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if out, err := inRoot(t, root, "/usr/sbin/nginx", "-t"); err != nil {
		t.Errorf("nginx -t: %v: %s", err, out)
	}
	root = extract(t, r, "e2e-test-images/nonewprivs:1.3")
	if info, err := os.Stat(root + "/nonewprivs"); err != nil || info.Mode()&os.ModeSetuid == 0 {
		t.Errorf("nonewprivs: %v, %v, want it setuid", info, err)
	}
	if out, err := inRoot(t, root, "/nonewprivs"); err != nil || out != "Effective uid: 0\n" {
		t.Errorf("output of nonewprivs = %q, %v, want effective uid 0", out, err)
	}
}

func reference(t *testing.T, r *Registry, image string) name.Reference {
	t.Helper()
	host := r.Addr
	if rest, ok := strings.CutPrefix(image, "auth.test/"); ok {
		host, image = r.AuthAddr, rest
	}
	if rest, ok := strings.CutPrefix(image, "token.test/"); ok {
		host, image = r.TokenAddr, rest
	}
	ref, err := name.ParseReference(host+"/"+image, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// pull downloads all layers, as a runtime does.
func pull(ctx context.Context, ref name.Reference, opts ...remote.Option) error {
	img, err := remote.Image(ref, append(opts, remote.WithContext(ctx),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}),
		remote.WithRetryBackoff(remote.Backoff{Steps: 1}))...)
	if err != nil {
		return err
	}
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	for _, l := range layers {
		rc, err := l.Compressed()
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, rc)
		if err := errors.Join(err, rc.Close()); err != nil {
			return fmt.Errorf("layer: %w", err)
		}
	}
	return nil
}
