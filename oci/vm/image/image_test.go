package image

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/u-root/u-root/pkg/cpio"
)

// program returns a file that is a program on every machine with Go: this test.
func program(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return self
}

// TestBuildIsReproducible: the same files give the same image, whatever their times and the order of directories.
func TestBuildIsReproducible(t *testing.T) {
	dir := t.TempDir()
	kernel := filepath.Join(dir, "vmlinuz")
	if err := os.WriteFile(kernel, []byte("not an ELF file"), 0o600); err != nil {
		t.Fatal(err)
	}
	var images [2][]byte
	for i := range images {
		c := Config{Agent: program(t), Runtime: "/bin/sh", Kernel: kernel, Dir: filepath.Join(dir, "out")}
		if err := Build(c); err != nil {
			t.Fatal(err)
		}
		var err error
		if images[i], err = os.ReadFile(filepath.Join(c.Dir, InitrdFile)); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(images[0], images[1]) {
		t.Error("two builds differ")
	}
	records, err := cpio.ReadAllRecords(cpio.Newc.Reader(bytes.NewReader(images[0])))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range records {
		names = append(names, r.Name)
		if r.MTime != 0 || r.UID != 0 {
			t.Errorf("%s has time %d and user %d, want 0", r.Name, r.MTime, r.UID)
		}
	}
	for _, want := range []string{"init", "bin/runtime", "dev/console", "proc", "shared"} {
		if !slices.Contains(names, want) {
			t.Errorf("the image has %v, want %s in it", names, want)
		}
	}
	libraries, err := sharedLibraries("/", "/bin/sh")
	if err != nil || len(libraries) < 2 || !slices.Contains(names, libraries[0][1:]) {
		t.Errorf("shared libraries of sh = %v, %v, want at least two, in the image", libraries, err)
	}
}

func TestBuildNamesWhatIsMissing(t *testing.T) {
	err := Build(Config{Agent: "/not/there", Runtime: "/bin/sh", Kernel: "/bin/sh", Dir: t.TempDir()})
	if !os.IsNotExist(err) {
		t.Errorf("Build without an agent = %v, want that the file does not exist", err)
	}
}
