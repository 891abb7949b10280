package images

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// AddAgnhost adds replacements for the images that only Kubernetes' own node tests use: agnhost, images made of
// busybox, some of them with a program that Debian's does not have, and other names of nginx. dir has agnhost,
// localhost.crt and localhost.key, which are built with those tests. They are not part of the layout, because agnhost
// has 60 MB and no other test uses it.
func (r *Registry) AddAgnhost(path layout.Path, dir string) error {
	busybox, busyboxErr := imageOf(path, e2e+"busybox:1.36.1-1")
	nginx, nginxErr := imageOf(path, e2e+"nginx:1.27-0")
	pause, err := imageOf(path, "pause:3.10")
	if err := errors.Join(busyboxErr, nginxErr, err); err != nil {
		return err
	}
	programs, err := agnhost(dir, pause)
	if err != nil {
		return fmt.Errorf("agnhost: %w", err)
	}
	clock, kitten := tree{}, tree{}
	clock.file("bin/nmeter", 0o755, []byte(nmeter))
	kitten.text("data.json", `{"image": "kitten.jpg"}`)
	kitten.text("etc/os-release", "NAME=\"Alpine Linux\"\n") // the spec wants this name
	return errors.Join(
		r.extend(busybox, v1.Config{Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}}, programs, "agnhost:2.66.1",
			"agnhost:2.55"),
		r.extend(busybox, v1.Config{Cmd: []string{"id"}, User: "1234"}, tree{}, "nonroot:1.5"),
		r.extend(busybox, shell, tree{}, "glibc-dns-testing:2.1.1"),
		r.extend(busybox, shell, clock, "busybox:1.29-2", "busybox:1.36.1-1", "busybox:1.37.0-2"),
		r.extend(busybox, shell, kitten, "kitten:1.8"),
		r.push(nginx, e2e+"nginx:1.27.0-2"), r.push(nginx, e2e+"nginx:1.28.0-2"))
}

// extend adds an image under some names: another one with further files and another configuration.
func (r *Registry) extend(base v1.Image, conf v1.Config, files tree, names ...string) error {
	layers, err := base.Layers()
	if err != nil {
		return err
	}
	more, err := files.layer()
	if err != nil {
		return err
	}
	img, err := image(conf, append(layers, more)...)
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := r.push(img, e2e+n); err != nil {
			return err
		}
	}
	return nil
}

// push adds an image.
func (r *Registry) push(img v1.Image, image string) error {
	ref, err := name.ParseReference(r.Addr+"/"+image, name.Insecure)
	if err != nil {
		return err
	}
	if err := remote.Write(ref, img); err != nil {
		return fmt.Errorf("push %s: %w", image, err)
	}
	return nil
}

// imageOf returns an image of the layout.
func imageOf(path layout.Path, name string) (v1.Image, error) {
	index, err := path.ImageIndex()
	if err != nil {
		return nil, err
	}
	found, err := partial.FindImages(index, match.Annotation(refName, name))
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("test image %s: %w", name, os.ErrNotExist)
	}
	return found[0], nil
}

// nmeter prints the time with its fraction of a second, which is all that the node tests use it for.
const nmeter = "#!/bin/sh\necho | ts '%H:%M:%.S' | cut -d ' ' -f 1\n"

// curl replaces the curl of the node tests' hooks, which only print a page.
const curl = "#!/bin/sh\nfor url; do :; done\nexec wget -q -O - --no-check-certificate \"$url\"\n"

// agnhost returns the files that the image's Dockerfile adds to a small distribution.
func agnhost(dir string, pause v1.Image) (tree, error) {
	t := tree{}
	for file, mode := range map[string]int64{"agnhost": 0o755, "localhost.crt": 0o644, "localhost.key": 0o644} {
		data, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return nil, err
		}
		t.file(file, mode, data)
	}
	t.symlink("agnhost-2", "agnhost")
	t.dir("uploads", 0o777)
	t.file("bin/curl", 0o755, []byte(curl))
	t.file("bin/nmeter", 0o755, []byte(nmeter))
	t.file("bin/bash", 0o755, []byte("#!/bin/sh\nexec /bin/sh \"$@\"\n")) // the scripts run in any POSIX shell
	t.text("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/home:/bin/false\n"+
		"user-defined-in-image:x:1000:1000::/home/u:/bin/sh\n")
	t.text("etc/group", "root:x:0:\nnogroup:x:65534:\nuser-defined-in-image:x:1000:\n"+
		"group-defined-in-image:x:50000:user-defined-in-image\n")
	return t, fakeRegistry(t, pause)
}

// fakeRegistry adds what agnhost's own registry serves: pause:testing, a list with one image.
func fakeRegistry(t tree, pause v1.Image) error {
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: pause,
		Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}})
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	list, err := index.RawManifest()
	if err != nil {
		return err
	}
	own, err := pause.Digest()
	if err != nil {
		return err
	}
	manifest, err := pause.RawManifest()
	if err != nil {
		return err
	}
	config, err := pause.ConfigName()
	if err != nil {
		return err
	}
	raw, err := pause.RawConfigFile()
	if err != nil {
		return err
	}
	add := func(kind string, h v1.Hash, data []byte) {
		t.file(fmt.Sprintf("var/registry/pause/%s/sha256/%s/%s/data", kind, h.Hex[:2], h.Hex), 0o644, data)
	}
	add("manifests", digest, list)
	add("manifests", own, manifest)
	add("blobs", config, raw)
	t.text("var/registry/pause/manifests/testing", digest.String()+"\n")
	return addBlobs(pause, add)
}

func addBlobs(img v1.Image, add func(kind string, h v1.Hash, data []byte)) error {
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	for _, l := range layers {
		h, err := l.Digest()
		if err != nil {
			return err
		}
		rc, err := l.Compressed()
		if err != nil {
			return err
		}
		data, err := io.ReadAll(rc)
		if err != nil {
			return err
		}
		if err := rc.Close(); err != nil {
			return err
		}
		add("blobs", h, data)
	}
	return nil
}
