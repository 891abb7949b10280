package images

import (
	"fmt"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// item is one image or one list of images and the names (without a registry) it is served under.
type item struct {
	names []string
	image v1.Image
	index v1.ImageIndex
}

// catalog collects items; the first error sticks.
type catalog struct {
	parts *parts
	items []item
	err   error
}

func (c *catalog) add(img v1.Image, err error, names ...string) {
	if c.err == nil && err != nil {
		c.err = fmt.Errorf("image %s: %w", names[0], err)
	}
	c.items = append(c.items, item{names: names, image: img})
}

// plain adds busybox with another config.
func (c *catalog) plain(conf v1.Config, names ...string) {
	img, err := image(conf, c.parts.busyboxLayer)
	c.add(img, err, names...)
}

// over adds busybox with one more layer.
func (c *catalog) over(conf v1.Config, t tree, names ...string) {
	l, err := t.layer()
	if err != nil {
		c.add(nil, err, names...)
		return
	}
	img, err := image(conf, c.parts.busyboxLayer, l)
	c.add(img, err, names...)
}

// everything is all there is to serve.
func everything(p *parts) ([]item, error) {
	c := &catalog{parts: p}
	c.critest()
	c.servers()
	c.own()
	c.platforms()
	c.hostile()
	return c.items, c.err
}

// Where critest looks: registry.k8s.io/e2e-test-images and gcr.io/k8s-staging-cri-tools.
const (
	e2e     = "e2e-test-images/"
	staging = "k8s-staging-cri-tools/"
)

var shell = v1.Config{Cmd: []string{"sh"}}

// critest adds what critest v1.36.0 pulls, but for the servers (pkg/framework/util.go, pkg/validate/consts.go,
// images/).
func (c *catalog) critest() {
	c.plain(shell, e2e+"busybox:1.29-2", e2e+"busybox:1.36.1-1", e2e+"busybox:1.37.0-1",
		"library/busybox:latest", "docker/library/busybox:1", "docker/library/busybox:1-glibc",
		"docker/library/busybox:1-musl", "docker/library/busybox:1-uclibc", "docker/library/busybox:1.35.0-glibc")

	for _, u := range []struct{ name, user string }{
		{"test-image-user-uid", "1002"},
		{"test-image-user-username", "www-data"},
		{"test-image-user-uid-group", "1003:1004"},
		{"test-image-user-username-group", "www-data:1004"},
	} {
		c.plain(v1.Config{Cmd: []string{"sh"}, User: u.user}, staging+u.name+":latest")
	}
	c.over(v1.Config{Cmd: []string{"sh"}, User: "1000"}, tree{
		"etc/passwd": textEntry("root:x:0:0:root:/root:/bin/sh\ndefault-user:x:1000:1000::/home/default-user:/bin/sh\n"),
		"etc/group":  textEntry("root:x:0:\ndefault-user:x:1000:\ngroup-defined-in-image:x:50000:default-user\n"),
	}, staging+"test-image-predefined-group:latest")

	for _, name := range []string{"test-image-1:latest", "test-image-2:latest", "test-image-3:latest",
		"test-image-latest:latest", "test-image-digest:latest", "test-image-tag:test", "test-image-tag:all"} {
		c.over(shell, tree{"test": textEntry(name)}, staging+name)
	}
	c.over(shell, tree{"test": textEntry("same-image")},
		staging+"test-image-tags:1", staging+"test-image-tags:2", staging+"test-image-tags:3")

	c.over(v1.Config{Entrypoint: []string{"/nonewprivs"}}, tree{
		"nonewprivs": {Header: headerMode(0o4755), data: c.parts.nonewprivs},
	}, e2e+"nonewprivs:1.3", e2e+"nonewprivs:1.4")

	// critest removes 3.9 and all names of it, so it must not be the image that others use
	c.pause("3.9", "pause:3.9")
	c.pause("3.10", "pause:3.10", "pause:3.10.1", "pause:3.10.2", "pause:latest")
}

func (c *catalog) pause(version string, names ...string) {
	l, err := tree{"pause": {Header: headerMode(0o755), data: c.parts.pause}}.layer()
	if err != nil {
		c.add(nil, err, names...)
		return
	}
	img, err := image(v1.Config{
		Entrypoint: []string{"/pause"}, User: "65535:65535", Labels: map[string]string{"version": version},
	}, l)
	c.add(img, err, names...)
}

// servers adds the web servers.
func (c *catalog) servers() {
	run := v1.Config{Cmd: []string{"nginx", "-g", "daemon off;"}, StopSignal: "SIGQUIT",
		ExposedPorts: map[string]struct{}{"80/tcp": {}}}
	img, err := image(run, c.parts.busyboxLayer, c.parts.ngLayer)
	c.add(img, err, e2e+"nginx:1.14-2", e2e+"nginx:1.15-4", e2e+"nginx:1.27-0", "library/nginx:latest")

	other := tree{}
	conf, err := progs.ReadFile("progs/nginx.conf")
	other.text("etc/nginx/nginx.conf", string(replacePort(conf, 12003)))
	l, lerr := other.layer()
	if err == nil {
		err = lerr
	}
	if err == nil {
		img, err = image(run, c.parts.busyboxLayer, c.parts.ngLayer, l)
	}
	c.add(img, err, staging+"hostnet-nginx-"+runtime.GOARCH+":latest")

	script, err := progs.ReadFile("progs/httpd-foreground")
	if err != nil {
		c.add(nil, err, e2e+"httpd:2.4.39-4")
		return
	}
	c.over(v1.Config{Cmd: []string{"httpd-foreground"}}, tree{
		"bin/httpd-foreground": {Header: headerMode(0o755), data: script},
		"var/www/index.html":   textEntry("<html><body><h1>It works!</h1></body></html>\n"),
	}, e2e+"httpd:2.4.39-4")
}

// platforms adds lists of images and images that this machine cannot run.
func (c *catalog) platforms() {
	other := v1.Platform{OS: "linux", Architecture: "s390x"}
	if runtime.GOARCH == "s390x" {
		other.Architecture = "amd64"
	}
	here := v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
	foreign, err := imageFor(other, shell, c.parts.busyboxLayer)
	c.add(foreign, err, "podd/foreign:latest")
	native, err := image(v1.Config{Cmd: []string{"sh"}, Labels: map[string]string{"from": "list"}}, c.parts.busyboxLayer)
	c.add(native, err, "podd/native:latest")
	if c.err != nil {
		return
	}
	c.items = append(c.items,
		item{names: []string{"podd/multiarch:latest"}, index: list(
			platformed{foreign, other}, platformed{native, here},
			platformed{foreign, v1.Platform{OS: "windows", Architecture: "amd64", OSVersion: "10.0.20348.1"}})},
		item{names: []string{"podd/foreign-list:latest"}, index: list(platformed{foreign, other})})
}

type platformed struct {
	image    v1.Image
	platform v1.Platform
}

func list(members ...platformed) v1.ImageIndex {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, m := range members {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: m.image, Descriptor: v1.Descriptor{Platform: &m.platform},
		})
	}
	return index
}
