package image

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/u-root/u-root/pkg/cpio"
)

// tree is an initial file system, each directory before its files.
type tree struct {
	records []cpio.Record
	have    map[string]bool
}

// add adds a record, unless the name is taken, and the directories above it.
func (t *tree) add(r cpio.Record) {
	if t.have[r.Name] {
		return
	}
	if dir := path.Dir(r.Name); dir != "." {
		t.directory(dir)
	}
	if t.have == nil {
		t.have = map[string]bool{}
	}
	t.have[r.Name] = true
	t.records = append(t.records, r)
}

func (t *tree) directory(name string) { t.add(cpio.Directory(name, 0o755)) }

func (t *tree) content(name string, mode uint64, data []byte) {
	t.add(cpio.StaticFile(name, string(data), mode))
}

// file adds a file of this machine.
func (t *tree) file(name, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	t.content(name, 0o755, data)
	return nil
}

// program adds a program with the shared libraries that it needs, each at its path on this machine.
func (t *tree) program(name, from string) error {
	libraries, err := sharedLibraries("/", from)
	if err != nil {
		return fmt.Errorf("shared libraries of %s: %w", from, err)
	}
	for _, l := range libraries {
		if err := t.file(strings.TrimPrefix(l, "/"), l); err != nil {
			return err
		}
	}
	return t.file(name, from)
}

// libraryDirs are where ld.so(8) of Debian looks.
func libraryDirs() []string {
	return []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu",
		"/usr/lib/aarch64-linux-gnu", "/lib", "/usr/lib"}
}

// sharedLibraries returns the sorted paths, below root, of the dynamic linker and all libraries of a program; none if
// it is static.
func sharedLibraries(root, program string) ([]string, error) {
	found := map[string]bool{}
	todo := []string{program}
	for len(todo) > 0 {
		file := todo[0]
		todo = todo[1:]
		needs, linker, err := dynamicNeeds(file)
		if err != nil {
			return nil, err
		}
		if linker != "" {
			found[linker] = true
		}
		for _, name := range needs {
			l, err := findLibrary(root, name)
			if err != nil {
				return nil, err
			}
			if !found[l] {
				found[l] = true
				todo = append(todo, below(root, l))
			}
		}
	}
	var sorted []string
	for l := range found {
		sorted = append(sorted, l)
	}
	slices.Sort(sorted)
	return sorted, nil
}

// dynamicNeeds returns the names of the libraries that an ELF file needs, and its dynamic linker.
func dynamicNeeds(file string) (needs []string, linker string, err error) {
	f, err := elf.Open(file)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			text := make([]byte, p.Filesz)
			if _, err := p.ReadAt(text, 0); err != nil {
				return nil, "", err
			}
			linker = strings.TrimRight(string(text), "\x00")
		}
	}
	needs, err = f.ImportedLibraries()
	return needs, linker, err
}

// below returns where a file is below root. Packages have files in /usr that a system has in / too.
func below(root, file string) string {
	if merged := filepath.Join(root, "usr", file); root != "/" {
		if _, err := os.Stat(merged); err == nil {
			return merged
		}
	}
	return filepath.Join(root, file)
}

func findLibrary(root, name string) (string, error) {
	for _, dir := range libraryDirs() {
		file := filepath.Join(dir, name)
		_, err := os.Stat(below(root, file))
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return "", fmt.Errorf("library %s: %w", name, fs.ErrNotExist)
}
