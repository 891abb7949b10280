package images

import (
	"archive/tar"
	"bytes"
	"fmt"
	"math/rand/v2"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func textEntry(s string) entry { return entry{Header: headerMode(0o644), data: []byte(s)} }

func headerMode(mode int64) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Mode: mode} }

func replacePort(conf []byte, port int) []byte {
	return bytes.ReplaceAll(conf, []byte("@PORT@"), fmt.Append(nil, port))
}

// own adds the well-behaved images of podd's own tests, all under podd/.
func (c *catalog) own() {
	c.plain(v1.Config{
		Entrypoint: []string{"/bin/echo", "entry"}, Cmd: []string{"cmd"},
		Env:        append([]string{"GREETING=hello", "EMPTY="}, env...),
		WorkingDir: "/var/log", Labels: map[string]string{"org.opencontainers.image.title": "config"},
	}, "podd/config:latest")
	c.plain(v1.Config{Cmd: []string{"sh"}, WorkingDir: "/not/there/yet"}, "podd/workdir:latest")
	c.plain(v1.Config{Cmd: []string{"sleep", "1000"},
		Volumes: map[string]struct{}{"/data": {}, "/etc/extra": {}, "C:/relative": {}}}, "podd/volumes:latest")
	linked := tree{}
	linked.symlink("var/run", "/run")
	c.over(v1.Config{Cmd: []string{"sh"}, Volumes: map[string]struct{}{"/run": {}}}, linked, "podd/volume-run:latest")
	c.over(v1.Config{Cmd: []string{"sh"}, WorkingDir: "/var/run/app", Volumes: map[string]struct{}{"/var/run/db": {}}},
		linked, "podd/dangling:latest")
	c.plain(v1.Config{
		Cmd:        []string{"sh", "-c", `trap 'echo got USR1; exit 7' USR1; echo ready; while true; do sleep 0.1; done`},
		StopSignal: "SIGUSR1",
	}, "podd/stopsignal:latest")
	c.plain(v1.Config{Cmd: []string{"sh"}, StopSignal: "SIGRTMIN+3"}, "podd/stopsignal:realtime")
	c.plain(v1.Config{User: "www-data:nogroup", Cmd: []string{"id"}}, "podd/named-user:latest")
	c.over(v1.Config{Cmd: []string{"sh"}}, tree{
		"data/a/b/file":  textEntry("deep\n"),
		"data/top":       textEntry("top\n"),
		"data/link":      {Header: tar.Header{Typeflag: tar.TypeSymlink, Linkname: "a/b", Mode: 0o777}},
		"data/up":        {Header: tar.Header{Typeflag: tar.TypeSymlink, Linkname: "../../..", Mode: 0o777}},
		"data/etc":       {Header: tar.Header{Typeflag: tar.TypeSymlink, Linkname: "/etc", Mode: 0o777}},
		"data/exec/tool": {Header: headerMode(0o755), data: []byte("#!/bin/sh\necho tool\n")},
	}, "podd/data:latest")
	c.layered()
	c.artifact()
}

// artifact adds what "oras push" makes of a file.
func (c *catalog) artifact() {
	img, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		"application/vnd.oci.empty.v1+json"), mutate.Addendum{
		Layer:       static.NewLayer([]byte("weights\n"), "text/plain"),
		Annotations: map[string]string{"org.opencontainers.image.title": "model/weights"},
	})
	c.add(img, err, "podd/artifact:latest")
}

// layered adds an image of many layers of incompressible content, about 24 MiB, with what layers can do to each
// other: a file replaced, a whiteout, an opaque directory, a hard link into a lower layer's file, an xattr.
func (c *catalog) layered() {
	const name = "podd/layered:latest"
	layers := []v1.Layer{c.parts.busyboxLayer}
	for i := range 24 {
		data := make([]byte, 1<<20)
		fill(data, uint64(i))
		t := tree{"replaced": textEntry(fmt.Sprintf("layer %d\n", i))}
		t.file(fmt.Sprintf("blob/%02d", i), 0o644, data)
		t.text(fmt.Sprintf("gone/%02d", i), "removed by the next layer")
		t.text(fmt.Sprintf("opaque/%02d", i), "only the last one is seen")
		t.file("opaque/.wh..wh..opq", 0o644, nil)
		if i > 0 {
			t.file(fmt.Sprintf("gone/.wh.%02d", i-1), 0o644, nil)
		}
		l, err := t.layer()
		if err != nil {
			c.add(nil, err, name)
			return
		}
		layers = append(layers, l)
	}
	top := tree{"linked": textEntry("linked\n")}
	top.hardlink("linked-too", "linked")
	capable := textEntry("a file with an attribute\n")
	capable.PAXRecords = map[string]string{"SCHILY.xattr.user.podd": "yes"}
	top["xattr"] = capable
	l, err := top.layer()
	if err != nil {
		c.add(nil, err, name)
		return
	}
	img, err := image(shell, append(layers, l)...)
	c.add(img, err, name)
}

// fill writes the same noise for the same seed.
func fill(b []byte, seed uint64) {
	var key [32]byte
	key[0], key[1] = byte(seed), byte(seed>>8)
	_, _ = rand.NewChaCha8(key).Read(b) // never fails
}
