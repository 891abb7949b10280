// Package image builds the image that a pod's virtual machine boots: a kernel and an initial RAM file system with the
// agent, an OCI runtime and kernel modules, all from files of the distribution. The same files give the same image, bit
// by bit.
package image

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/u-root/u-root/pkg/cpio"
)

// Names of the files of an image, below <directory>/<driver>.
const (
	KernelFile    = "kernel"
	InitrdFile    = "initrd"
	VirtiofsdFile = "virtiofsd"
)

// Config names the parts of an image.
type Config struct {
	// Agent is the static agent, Runtime the OCI runtime; its shared libraries are taken from this machine.
	Agent, Runtime string
	// Kernel is the file to boot: linux.uml for User-Mode Linux, a vmlinuz for QEMU. For a kernel that is a program of
	// the host, Root is the directory below which its shared libraries are; it is empty for others.
	Kernel, Root string
	// Virtiofsd is the program below Root that serves the files to such a kernel; empty for others.
	Virtiofsd string
	// Modules is the directory of the kernel's modules, and Wanted the names of those that the image gets. What a
	// module depends on is added; a name that the kernel has built in is left out.
	Modules string
	Wanted  []string
	// Dir gets the files KernelFile, InitrdFile and VirtiofsdFile, and the shared libraries at their paths.
	Dir string
}

// Build writes the image. The files are replaced at once each: machines that run keep theirs.
func Build(c Config) error {
	records, err := c.records()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return err
	}
	err = replace(filepath.Join(c.Dir, InitrdFile), func(w io.Writer) error { return writeArchive(w, records) })
	if err != nil {
		return fmt.Errorf("write the initial file system: %w", err)
	}
	if err := c.copyPrograms(); err != nil {
		return err
	}
	return copyFile(filepath.Join(c.Dir, KernelFile), c.Kernel)
}

// copyPrograms copies the files for a kernel that is a program: virtiofsd, and the shared libraries of both. One of
// virtiofsd's, libgcc_s.so.1, is loaded by the C library when a thread is canceled (pthread_cancel(3)), as User-Mode
// Linux does when it ends: without it the kernel is aborted, and its exit code is lost.
func (c Config) copyPrograms() error {
	if c.Root == "" {
		return nil
	}
	for _, program := range []string{c.Kernel, c.Virtiofsd} {
		libraries, err := sharedLibraries(c.Root, program)
		if err != nil {
			return fmt.Errorf("shared libraries of %s: %w", program, err)
		}
		for _, l := range libraries {
			if err := c.copyLibrary(c.Root, l); err != nil {
				return err
			}
		}
	}
	return copyFile(filepath.Join(c.Dir, VirtiofsdFile), c.Virtiofsd)
}

// copyLibrary copies a library of root to its path in the image.
func (c Config) copyLibrary(root, library string) error {
	to := filepath.Join(c.Dir, library)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return copyFile(to, below(root, library))
}

func copyFile(to, from string) error {
	return replace(to, func(w io.Writer) error {
		f, err := os.Open(from)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(w, f)
		return err
	})
}

// records are the files of the initial file system.
func (c Config) records() ([]cpio.Record, error) {
	var t tree
	for _, dir := range []string{"dev", "proc", "run", "shared", "sys", "tmp", "root"} {
		t.directory(dir)
	}
	// The kernel opens it for process 1, before /dev is mounted.
	t.add(cpio.CharDev("dev/console", 0o600, 5, 1))
	if err := t.file("init", c.Agent); err != nil {
		return nil, err
	}
	if err := t.program("bin/runtime", c.Runtime); err != nil {
		return nil, err
	}
	modules, err := findModules(c.Modules, c.Wanted)
	if err != nil {
		return nil, err
	}
	for i, m := range modules {
		// The agent loads them in the order of their names.
		t.content(fmt.Sprintf("lib/modules/%03d-%s.ko", i, m.name), 0o600, m.content)
	}
	return t.records, nil
}

func writeArchive(w io.Writer, records []cpio.Record) error {
	archive := cpio.Newc.Writer(w)
	for i := range records {
		r := records[i]
		r.Ino = uint64(i + 1)
		if err := archive.WriteRecord(cpio.MakeReproducible(r)); err != nil {
			return fmt.Errorf("%s: %w", r.Name, err)
		}
	}
	return cpio.WriteTrailer(archive)
}

// replace writes a file under another name and renames it.
func replace(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	err = errors.Join(write(f), f.Chmod(0o755), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
