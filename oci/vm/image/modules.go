package image

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ulikunitz/xz"
)

// module is a kernel module, not compressed.
type module struct {
	name    string
	content []byte
}

// findModules returns the wanted modules of dir and their dependencies, each after its own.
func findModules(dir string, wanted []string) ([]module, error) {
	if len(wanted) == 0 {
		return nil, nil
	}
	files, err := moduleFiles(dir)
	if err != nil {
		return nil, err
	}
	c := collector{files: files, state: map[string]bool{}}
	for _, name := range wanted {
		if err := c.collect(moduleName(name)); err != nil {
			return nil, err
		}
	}
	return c.modules, nil
}

// collector collects modules in the order of their dependencies.
type collector struct {
	files   map[string]string
	modules []module
	// state has the modules that were visited.
	state map[string]bool
}

func (c *collector) collect(name string) error {
	if c.state[name] {
		return nil
	}
	c.state[name] = true
	file, ok := c.files[name]
	if !ok {
		return nil // built in, or this kernel does without it: a missing one shows when the machine starts
	}
	content, err := readModule(file)
	if err != nil {
		return fmt.Errorf("module %s: %w", name, err)
	}
	needs, err := dependencies(content)
	if err != nil {
		return fmt.Errorf("module %s: %w", name, err)
	}
	for _, n := range needs {
		if err := c.collect(moduleName(n)); err != nil {
			return err
		}
	}
	c.modules = append(c.modules, module{name, content})
	return nil
}

// moduleName is the name of a module for the kernel, which takes - for _.
func moduleName(name string) string { return strings.ReplaceAll(name, "-", "_") }

// moduleFiles returns the files of the modules below dir, by name.
func moduleFiles(dir string) (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name, ok := strings.CutSuffix(strings.TrimSuffix(d.Name(), ".xz"), ".ko"); ok && d.Type().IsRegular() {
			files[moduleName(name)] = path
		}
		return nil
	})
	return files, err
}

// readModule reads a module, which Debian compresses since version 13.
func readModule(file string) ([]byte, error) {
	data, err := os.ReadFile(file)
	if err != nil || !strings.HasSuffix(file, ".xz") {
		return data, err
	}
	r, err := xz.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// dependencies are the names in the module's "depends" entry.
func dependencies(content []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	info := f.Section(".modinfo")
	if info == nil {
		return nil, errors.New("it is not a kernel module: no section .modinfo")
	}
	data, err := info.Data()
	if err != nil {
		return nil, err
	}
	for entry := range bytes.SplitSeq(data, []byte{0}) {
		if names, ok := strings.CutPrefix(string(entry), "depends="); ok && names != "" {
			return strings.Split(names, ","), nil
		}
	}
	return nil, nil
}
