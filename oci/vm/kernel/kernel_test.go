package kernel

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

// write writes a file of an image and returns the image's root.
func write(t *testing.T, root, name string, mode os.FileMode, data []byte) {
	t.Helper()
	file := filepath.Join(root, name)
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, mode); err != nil {
		t.Fatal(err)
	}
}

// TestOpen: the files are those of the image, however its links lead, and fit the machine.
func TestOpen(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	write(t, outside, "kernel", 0o644, []byte("the host's"))
	write(t, root, "kernel", 0o644, make([]byte, 100))
	write(t, root, "secret", 0o600, nil)
	write(t, root, "pair", 0o644, make([]byte, 60))
	write(t, root, "pair"+InitrdSuffix, 0o644, make([]byte, 50))
	for link, target := range map[string]string{
		"out": outside + "/kernel", "up": "../../../../../../.." + outside + "/kernel", "in": "/kernel",
		"exe": "/proc/self/exe", "loop": "loop",
	} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		"/kernel": "", "kernel": "", "/in": "", "/../kernel": "",
		"/out": "no such file", "/up": "no such file", "/exe": "no such file", "/loop": "symbolic links",
		"/": "not a regular file", "/secret": "must be able to read", "/pair": "more than the memory",
		"/kernel\x00": "", "/" + strings.Repeat("k", 300): "too long",
	} {
		files, err := Open(root, path, 100)
		files.Close()
		if want == "" && !strings.Contains(path, "\x00") {
			if err != nil {
				t.Errorf("Open %q = %v, want no error", path, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open %q = %v, want %q", path, err, want)
		}
	}
	files, err := Open(root, "/pair", 110)
	if err != nil || files.Initrd == nil {
		t.Errorf("Open of a kernel with an initial file system = %+v, %v, want both files", files, err)
	}
	files.Close()
}

// header is that of a kernel, with a value at an offset.
func header(at int, value string) []byte {
	b := make([]byte, bootHeaderEnd+100)
	copy(b[bootMarkAt:], bootMark)
	copy(b[bootVersionAt:], "\x0f\x02")
	copy(b[at:], value)
	return b
}

func TestCheckBootable(t *testing.T) {
	elf := func(kind, machine byte) []byte {
		return append([]byte("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00"), kind, 0, machine, 0, 0)
	}
	for _, c := range []struct {
		name, want string
		data       []byte
	}{
		{"bzImage", "", header(0, "")},
		{"program for x86-64", "", elf(2, 62)},
		{"program for x86", "", elf(2, 3)},
		{"program for ARM", "AARCH64", elf(2, 183)},
		{"object file", "ET_REL", elf(1, 62)},
		{"ELF that ends early", "neither", []byte("\x7fELF")},
		{"old boot protocol", "version 0x201", header(bootVersionAt, "\x01")},
		{"no mark", "neither", header(bootMarkAt, "NONE")},
		{"header that ends early", "neither", header(0, "")[:bootMarkAt+4]},
		{"nothing", "neither", nil},
		{"script", "neither", []byte("#!/bin/sh\n")},
	} {
		err := CheckBootable(bytes.NewReader(c.data))
		if c.want == "" && err != nil || c.want != "" && (!errdefs.IsInvalidArgument(err) ||
			!strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// FuzzCheckBootable: no file makes it panic.
func FuzzCheckBootable(f *testing.F) {
	f.Add(header(0, ""))
	f.Add([]byte("\x7fELF\x02\x01"))
	f.Fuzz(func(_ *testing.T, data []byte) { _ = CheckBootable(bytes.NewReader(data)) })
}

func TestCheckSame(t *testing.T) {
	dir := t.TempDir()
	own := bytes.Repeat([]byte("kernel"), 20<<10)
	write(t, dir, "own", 0o755, own)
	changed := bytes.Clone(own)
	changed[len(changed)-1]++
	for name, c := range map[string]struct {
		data []byte
		same bool
	}{
		"a copy": {own, true}, "changed": {changed, false}, "longer": {append(own[:len(own):len(own)], 0), false},
		"shorter": {own[:len(own)-1], false}, "empty": {nil, false},
	} {
		if err := CheckSame(bytes.NewReader(c.data), filepath.Join(dir, "own")); (err == nil) != c.same {
			t.Errorf("%s: %v, want the same: %v", name, err, c.same)
		}
	}
}
