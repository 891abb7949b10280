package images

import (
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

//go:embed progs
var progs embed.FS

// env is what the images set, as nearly every image does.
var env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}

// parts are the layers that several images share.
type parts struct {
	busybox, nginx        tree
	pause, nonewprivs     []byte
	busyboxLayer, ngLayer v1.Layer
}

// gather downloads and compiles what the images are made of. scratch is a directory for the steps in between.
func gather(ctx context.Context, debs, scratch string) (*parts, error) {
	deb, err := unpackDebian(ctx, debs, filepath.Join(scratch, "root"))
	if err != nil {
		return nil, err
	}
	p := &parts{}
	if p.pause, err = compile(ctx, scratch, "pause"); err != nil {
		return nil, err
	}
	if p.nonewprivs, err = compile(ctx, scratch, "nonewprivs"); err != nil {
		return nil, err
	}
	if p.busybox, err = busybox(ctx, deb); err != nil {
		return nil, fmt.Errorf("busybox: %w", err)
	}
	if p.busyboxLayer, err = p.busybox.layer(); err != nil {
		return nil, err
	}
	if p.nginx, err = nginx(deb, 80); err != nil {
		return nil, fmt.Errorf("nginx: %w", err)
	}
	p.ngLayer, err = p.nginx.layer()
	return p, err
}

// compile builds a static program from progs/<name>.c.
func compile(ctx context.Context, scratch, name string) ([]byte, error) {
	source, err := progs.ReadFile("progs/" + name + ".c")
	if err != nil {
		return nil, err
	}
	c, out := filepath.Join(scratch, name+".c"), filepath.Join(scratch, name)
	if err := os.WriteFile(c, source, 0o644); err != nil {
		return nil, err
	}
	if err := run(ctx, scratch, "gcc", "-Os", "-static", "-s", "-o", out, c); err != nil {
		return nil, err
	}
	return os.ReadFile(out)
}

// busybox is Debian's busybox with every applet as a hard link: critest masks /bin/ls, which as a symbolic link would
// mask busybox itself. Of Debian's two builds only the dynamic one has a shell that looks for programs in PATH.
func busybox(ctx context.Context, deb *debian) (tree, error) {
	t := tree{}
	if err := deb.program(t, "bin/busybox", "bin/busybox"); err != nil {
		return nil, err
	}
	if err := deb.program(t, "bin/ipcs", "bin/ipcs"); err != nil {
		return nil, err
	}
	applets, err := listApplets(ctx, deb)
	if err != nil {
		return nil, err
	}
	for _, a := range applets {
		if _, ok := t["bin/"+a]; !ok {
			t.hardlink("bin/"+a, "bin/busybox")
		}
	}
	pgrep, err := progs.ReadFile("progs/pgrep")
	if err != nil {
		return nil, err
	}
	t.file("bin/pgrep", 0o755, pgrep)
	for _, dir := range []string{"dev", "etc", "home", "proc", "sys", "usr/bin", "var/log", "var/run", "var/www"} {
		t.dir(dir, 0o755)
	}
	t.dir("root", 0o700)
	t.dir("tmp", 0o1777)
	t.text("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33:www-data:/var/www:/bin/false\n"+
		"nobody:x:65534:65534:nobody:/home:/bin/false\n")
	t.text("etc/group", "root:x:0:\nwww-data:x:33:\nnogroup:x:65534:\n")
	return t, nil
}

func listApplets(ctx context.Context, deb *debian) ([]string, error) {
	bin, err := deb.find("busybox", "bin", "usr/bin")
	if err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, bin, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("list applets: %w", err)
	}
	return strings.Fields(string(out)), nil
}

// nginx is Debian's nginx on the given port, to be laid over busybox.
func nginx(deb *debian, port int) (tree, error) {
	t := tree{}
	if err := deb.program(t, "usr/sbin/nginx", "usr/sbin/nginx"); err != nil {
		return nil, err
	}
	conf, err := progs.ReadFile("progs/nginx.conf")
	if err != nil {
		return nil, err
	}
	t.text("etc/nginx/nginx.conf", strings.ReplaceAll(string(conf), "@PORT@", fmt.Sprint(port)))
	t.text("usr/share/nginx/html/index.html", "<html><h1>Welcome to nginx!</h1></html>\n")
	t.dir("var/lib/nginx", 0o755)
	t.dir("var/log/nginx", 0o755)
	return t, nil
}

// image stacks layers under a config for the host's platform. Its history says one line per layer, as builders do.
func image(c v1.Config, layers ...v1.Layer) (v1.Image, error) {
	return imageFor(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}, c, layers...)
}

func imageFor(p v1.Platform, c v1.Config, layers ...v1.Layer) (v1.Image, error) {
	adds := make([]mutate.Addendum, len(layers))
	for i, l := range layers {
		adds[i] = mutate.Addendum{Layer: l, History: v1.History{Created: v1.Time{Time: epoch}, CreatedBy: "podd test image"}}
	}
	img, err := mutate.Append(empty.Image, adds...)
	if err != nil {
		return nil, err
	}
	old, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file := old.DeepCopy()
	file.OS, file.Architecture, file.Variant = p.OS, p.Architecture, p.Variant
	file.Created = v1.Time{Time: epoch}
	if c.Env == nil {
		c.Env = env
	}
	file.Config = c
	return mutate.ConfigFile(img, file)
}
