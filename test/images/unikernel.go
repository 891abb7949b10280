package images

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// AddUnikernel adds an image, named as in a pull without its registry, that is a kernel with its initial file system:
// /kernel, its entry point, and /kernel.initrd.
func (r *Registry) AddUnikernel(name string, kernel, initrd []byte) error {
	files := tree{}
	files.file("kernel", 0o755, kernel)
	files.file("kernel.initrd", 0o644, initrd)
	layer, err := files.layer()
	if err != nil {
		return err
	}
	img, err := image(v1.Config{Entrypoint: []string{"/kernel"}}, layer)
	if err != nil {
		return err
	}
	return r.push(img, name)
}

// UnikernelProgram builds test/unikernel, which is all that runs on the kernel of a unikernel in the tests.
func UnikernelProgram(t testing.TB) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "init")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", file,
		"github.com/podd-project/podd/test/unikernel")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v\n%s", err, out)
	}
	program, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// InitialFile is a file of an initial file system; Major and Minor are those of a device.
type InitialFile struct {
	Name               string
	Mode, Major, Minor int
	Data               []byte
}

// InitialFileSystem is a cpio archive (Documentation/driver-api/early-userspace/buffer-format.rst) with a program as
// its first process, the console that the kernel opens for it, and more files.
func InitialFileSystem(program []byte, more ...InitialFile) []byte {
	var b bytes.Buffer
	align := func() { b.Write(make([]byte, -b.Len()&3)) }
	files := append([]InitialFile{
		{"dev", 0o40755, 0, 0, nil}, {"dev/console", 0o20600, 5, 1, nil}, {"init", 0o100755, 0, 0, program},
	}, more...)
	for i, r := range append(files, InitialFile{Name: "TRAILER!!!"}) {
		fmt.Fprintf(&b, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", i+1, r.Mode, 0, 0, 1, 0, len(r.Data),
			0, 0, r.Major, r.Minor, len(r.Name)+1, 0)
		b.WriteString(r.Name + "\x00")
		align()
		b.Write(r.Data)
		align()
	}
	return b.Bytes()
}
