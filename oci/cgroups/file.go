package cgroups

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// bufferSize holds any file that is read often; the kernel writes a file of a cgroup whole or not at all.
const bufferSize = 8 << 10

// file is one file of a group. Not a *os.File: that would put cgroup files, which can be polled, into the runtime's
// poller and be woken by each notification.
type file struct {
	path string
	// fd is kept open for the next reading; -1 when too many are.
	fd int
}

// openFile returns nil when there is no such file: the kernel, or this group, has not got it.
func (t *Tree) openFile(path string) *file {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	if t.spare.Add(-1) < 0 {
		t.spare.Add(1)
		unix.Close(fd)
		fd = -1
	}
	return &file{path: path, fd: fd}
}

func (t *Tree) closeFile(f *file) {
	if f == nil || f.fd < 0 {
		return
	}
	unix.Close(f.fd)
	f.fd = -1
	t.spare.Add(1)
}

// read hands the file's text to parse. A file that is nil, or that the kernel does not serve, has no text.
func (t *Tree) read(f *file, parse func(text []byte)) error {
	if f == nil {
		return nil
	}
	fd := f.fd
	if fd < 0 {
		var err error
		if fd, err = unix.Open(f.path, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return fmt.Errorf("read cgroup: %w", notFound(err))
		}
		defer unix.Close(fd)
	}
	buffer, _ := t.buffers.Get().(*[]byte)
	if buffer == nil {
		buffer = new(make([]byte, bufferSize))
	}
	defer t.buffers.Put(buffer)
	n, err := pread(fd, buffer)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP): // pressure files on a kernel that runs without PSI
		return nil
	case err != nil:
		return fmt.Errorf("read cgroup: %s: %w", f.path, notFound(err))
	}
	parse((*buffer)[:n])
	return nil
}

// pread reads all of a file, with one call when it fits.
func pread(fd int, buffer *[]byte) (int, error) {
	for {
		n, err := unix.Pread(fd, *buffer, 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, err
		case n < len(*buffer):
			return n, nil
		}
		*buffer = make([]byte, 2*len(*buffer))
	}
}

// readFile is for files that are read seldom; a file that is not there is empty.
func (t *Tree) readFile(path string) (text []byte, err error) {
	err = t.read(&file{path: path, fd: -1}, func(b []byte) { text = bytes.Clone(b) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// notFound marks the errors by which the kernel says that a group or process is gone: ENODEV for a file that was
// open when its group was removed, ESRCH for a file of an ended process.
func notFound(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("%w: %w", errdefs.ErrNotFound, err)
	}
	return err
}

// number parses a decimal number and takes "max" for Unlimited, as well as what v1 says instead: the highest
// multiple of a page below 2^63.
func number(text []byte) uint64 {
	text = bytes.TrimSpace(text)
	if string(text) == "max" {
		return Unlimited
	}
	var n uint64
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0
		}
		n = n*10 + uint64(c-'0')
	}
	if n > unlimitedV1 {
		return Unlimited
	}
	return n
}

// unlimitedV1 is far above any memory and below what the kernel says for "no limit" with any size of pages.
const unlimitedV1 = 1 << 62

// pairs calls each for the lines "key number" of a flat keyed file.
func pairs(text []byte, each func(key []byte, value uint64)) {
	for len(text) > 0 {
		line, rest, _ := bytes.Cut(text, []byte("\n"))
		text = rest
		if key, value, ok := bytes.Cut(line, []byte(" ")); ok {
			each(key, number(value))
		}
	}
}
