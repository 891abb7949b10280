package images

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// libDirs are where Debian keeps libraries, before and after the merge of / and /usr.
var libDirs = []string{"lib/*-linux-gnu*", "usr/lib/*-linux-gnu*", "lib64", "usr/lib64", "lib", "usr/lib"}

// program adds a program of the packages to the tree as name, with the loader and every library it needs.
func (d *debian) program(t tree, src, name string) error {
	file, err := d.find(filepath.Base(src), filepath.Dir(src), filepath.Join("usr", filepath.Dir(src)))
	if err != nil {
		return err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	t.file(name, 0o755, data)
	return d.needs(t, file)
}

// needs adds what the dynamic loader would look for to run file.
func (d *debian) needs(t tree, file string) error {
	f, err := elf.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	loader, err := interpreter(f)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	libs, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if loader != "" {
		if err := d.library(t, strings.TrimPrefix(loader, "/"), filepath.Base(loader)); err != nil {
			return err
		}
	}
	for _, lib := range libs {
		if strings.HasPrefix(lib, "ld-linux") {
			continue // the loader, which is there under its own path
		}
		if err := d.library(t, "lib/"+lib, lib); err != nil {
			return err
		}
	}
	return nil
}

// library adds one library, under the path name, and what it needs itself.
func (d *debian) library(t tree, name, lib string) error {
	if _, ok := t[name]; ok {
		return nil
	}
	file, err := d.find(lib, libDirs...)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	t.file(name, 0o755, data)
	return d.needs(t, file)
}

// interpreter returns the dynamic loader that the program names, or nothing.
func interpreter(f *elf.File) (string, error) {
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		b := make([]byte, p.Filesz)
		if _, err := p.ReadAt(b, 0); err != nil {
			return "", err
		}
		if len(b) == 0 {
			return "", errors.New("empty PT_INTERP")
		}
		return strings.TrimRight(string(b), "\x00"), nil
	}
	return "", nil
}
