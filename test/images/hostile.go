package images

import (
	"archive/tar"
	"bytes"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// hostile adds the images that a runtime must survive, all under hostile/. Each can be pulled, or must fail to be with
// an error and no trace; none may touch a file outside its root file system.
func (c *catalog) hostile() {
	c.plain(v1.Config{}, "hostile/no-command:latest")
	c.plain(v1.Config{User: "nosuchuser", Cmd: []string{"id"}}, "hostile/unknown-user:latest")
	c.plain(v1.Config{User: "1000:nosuchgroup", Cmd: []string{"id"}}, "hostile/unknown-group:latest")
	c.plain(v1.Config{User: "4294967296", Cmd: []string{"id"}}, "hostile/big-uid:latest")
	c.plain(v1.Config{User: "-1", Cmd: []string{"id"}}, "hostile/negative-uid:latest")
	c.plain(v1.Config{Cmd: []string{"sh"}, Env: []string{"PATH=/bin", "NOEQUALS", "=noname", "LINES=a\nb"}},
		"hostile/env:latest")
	c.plain(v1.Config{Cmd: []string{"sh"}, WorkingDir: "../../../tmp"}, "hostile/relative-workdir:latest")
	c.plain(v1.Config{Cmd: []string{"sh"}, StopSignal: "SIGNOSUCH"}, "hostile/stopsignal:latest")
	c.plain(v1.Config{Cmd: []string{"sleep", "1000"}, Volumes: map[string]struct{}{"../../escape": {},
		"/../../escape": {}}},
		"hostile/volumes:latest")
	c.plain(v1.Config{Cmd: []string{"sh"}, Labels: map[string]string{"big": strings.Repeat("x", 1<<20)}},
		"hostile/labels:latest")

	// a user name to look up, and a passwd that must not be read: too long, not a file, elsewhere
	byName := v1.Config{User: "somebody", Cmd: []string{"id"}}
	long := append([]byte("root:x:0:0:root:/root:/bin/sh\n"), bytes.Repeat([]byte("x"), 128<<20)...)
	c.over(byName, tree{"etc/passwd": {Header: headerMode(0o644), data: long}}, "hostile/passwd-huge:latest")
	fifo := tree{}
	fifo.node("etc/passwd", tar.TypeFifo, 0, 0)
	c.over(byName, fifo, "hostile/passwd-fifo:latest")
	device := tree{}
	device.node("etc/passwd", tar.TypeChar, 1, 5) // /dev/zero
	c.over(byName, device, "hostile/passwd-device:latest")
	away := tree{}
	away.symlink("etc/passwd", "../../../../../../etc/passwd")
	c.over(byName, away, "hostile/passwd-link:latest")
	away = tree{}
	away.symlink("var/log", "/../../../../../tmp")
	c.over(v1.Config{Cmd: []string{"sh"}, WorkingDir: "/var/log/made-by-workdir"}, away, "hostile/workdir-link:latest")

	c.mountPoints()

	c.raw("hostile/dotdot:latest", entry{Header: named("../../../../../../tmp/podd-escape", tar.TypeReg),
		data: []byte("escaped")})
	link := named("door", tar.TypeSymlink)
	link.Linkname = "/tmp"
	c.raw("hostile/through-link:latest", entry{Header: link},
		entry{Header: named("door/podd-escape", tar.TypeReg), data: []byte("escaped")})
	hard := named("shadow", tar.TypeLink)
	hard.Linkname = "../../../../../../etc/shadow"
	c.raw("hostile/hardlink:latest", entry{Header: hard})
}

// Elsewhere is the directory that links of hostile/dev-link and its like lead to. It exists in those images too.
const Elsewhere = "/tmp/podd-elsewhere"

// mountPoints adds images in which a directory that every container has a mount on is a link or a file.
func (c *catalog) mountPoints() {
	shell := v1.Config{Cmd: []string{"sh"}}
	for _, dir := range []string{"dev", "proc", "sys", "etc"} {
		t := tree{}
		t.dir(Elsewhere[1:], 0o755)
		t.symlink(dir, Elsewhere)
		c.over(shell, t, "hostile/"+dir+"-link:latest")
	}
	file := tree{}
	for _, dir := range []string{"dev", "proc", "sys"} {
		file.text(dir, "not a directory")
	}
	c.over(shell, file, "hostile/dev-file:latest")
	files := tree{}
	for _, name := range []string{"hostname", "hosts", "resolv.conf"} {
		files.symlink("etc/"+name, Elsewhere+"/"+name)
	}
	c.over(shell, files, "hostile/etc-files:latest")
}

// raw adds busybox under a layer whose entries are written as they stand.
func (c *catalog) raw(name string, list ...entry) {
	l, err := pack(list)
	if err != nil {
		c.add(nil, err, name)
		return
	}
	img, err := image(shell, c.parts.busyboxLayer, l)
	c.add(img, err, name)
}

func named(name string, typ byte) tar.Header {
	return tar.Header{Name: name, Typeflag: typ, Mode: 0o644}
}
