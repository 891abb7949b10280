// Package kernel checks the parts of a unikernel's image: the kernel, its initial file system and its arguments,
// chosen by the author of an image or a pod. It opens files and runs nothing.
package kernel

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// InitrdSuffix makes the name of the initial file system of the kernel's: it is in the same directory, and need not
// exist.
const InitrdSuffix = ".initrd"

// Files are the opened files of an image: a kernel, and its initial file system, nil without.
type Files struct{ Kernel, Initrd *os.File }

// Close closes both. It can be called again.
func (f *Files) Close() {
	for _, file := range []**os.File{&f.Kernel, &f.Initrd} {
		if *file != nil {
			_ = (*file).Close()
			*file = nil
		}
	}
}

// Open opens the kernel at a path in a root file system, none of whose links leads out of it, and what belongs to it.
// Both together have at most limit bytes.
func Open(root, path string, limit int64) (files Files, err error) {
	defer func() {
		if err != nil {
			files.Close()
		}
	}()
	path = filepath.Clean("/" + path)
	size := int64(0)
	if files.Kernel, size, err = openIn(root, path); err != nil {
		return files, err
	}
	initrd, more, err := openIn(root, path+InitrdSuffix)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return files, err
	}
	files.Initrd = initrd
	if size > limit || more > limit-size {
		return files, invalid("%s and its initial file system have %d and %d bytes, more than the memory of the machine, %d",
			path, size, more, limit)
	}
	return files, nil
}

// openIn opens a regular file in a root file system and returns its size.
func openIn(root, path string) (*os.File, int64, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, 0, fmt.Errorf("root file system %s: %w", root, err)
	}
	defer unix.Close(dir)
	how := &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC | unix.O_NOCTTY,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	}
	fd, err := unix.Openat2(dir, path, how)
	for n := 0; n < 64 && errors.Is(err, unix.EAGAIN); n++ { // a rename or mount anywhere may have moved ".."
		fd, err = unix.Openat2(dir, path, how)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("file %s of the image: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	info, err := f.Stat()
	switch {
	case err == nil && !info.Mode().IsRegular():
		err = invalid("%s in the image is not a regular file", path)
	case err == nil && info.Mode().Perm()&0o004 == 0:
		err = invalid("%s in the image has mode %#o: the monitor is not root, so that all must be able to read it", path,
			info.Mode().Perm())
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// The header of Linux for x86 (Documentation/arch/x86/boot.rst): a mark, and the version of the boot protocol.
const (
	bootMark, bootMarkAt       = "HdrS", 0x202
	bootVersionAt, bootVersion = 0x206, 0x20c
	bootHeaderEnd              = 0x208
)

// CheckBootable returns an error unless QEMU can boot the file on a PC: a bzImage, or a program in ELF for x86.
func CheckBootable(f io.ReaderAt) error {
	header := make([]byte, bootHeaderEnd)
	n, err := f.ReadAt(header, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the kernel: %w", err)
	}
	header = header[:n]
	if bytes.HasPrefix(header, []byte(elf.ELFMAG)) && len(header) > elf.EI_NIDENT+4 {
		kind := elf.Type(binary.LittleEndian.Uint16(header[elf.EI_NIDENT:]))
		machine := elf.Machine(binary.LittleEndian.Uint16(header[elf.EI_NIDENT+2:]))
		if (machine == elf.EM_X86_64 || machine == elf.EM_386) && (kind == elf.ET_EXEC || kind == elf.ET_DYN) {
			return nil
		}
		return invalid("the kernel is an ELF file of type %s for %s, want a program for x86", kind, machine)
	}
	if len(header) == bootHeaderEnd && string(header[bootMarkAt:bootMarkAt+len(bootMark)]) == bootMark {
		if v := binary.LittleEndian.Uint16(header[bootVersionAt:]); v < bootVersion {
			return invalid("the kernel has version %#x of the boot protocol, want %#x or newer", v, bootVersion)
		}
		return nil
	}
	return invalid("the kernel is neither a bzImage nor an ELF file for x86: the first argument of the container names it")
}

// CheckSame returns an error unless a file has the content of the node's. A kernel of User-Mode Linux is a program
// that runs on the node, so that only the node's own is started.
func CheckSame(f io.Reader, node string) error {
	own, err := os.Open(node)
	if err != nil {
		return err
	}
	defer own.Close()
	const chunk = 64 << 10
	a, b := make([]byte, chunk), make([]byte, chunk)
	for {
		n, errA := io.ReadFull(f, a)
		m, errB := io.ReadFull(own, b)
		if !bytes.Equal(a[:n], b[:m]) {
			return invalid("the kernel of the image is not %s: with User-Mode Linux it would be a program of the node, so "+
				"that an image must bring a copy of the node's", node)
		}
		if errA != nil || errB != nil {
			return unexpected(errA, errB)
		}
	}
}

// unexpected returns the errors but those of an end.
func unexpected(errs ...error) error {
	for _, err := range errs {
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("read the kernel: %w", err)
		}
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", errdefs.ErrInvalidArgument, fmt.Errorf(format, args...))
}
