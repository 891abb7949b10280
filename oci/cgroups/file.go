package cgroups

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// bufferSize in bytes fits every file that is read often.
const bufferSize = 8 << 10

// file is one file of a group. It is not an *os.File: cgroup files can be polled, so that the Go runtime would add them
// to its poller and wake up at each notification.
type file struct {
	path string
	// fd stays open for the next read; -1 if too many files are open.
	fd int
}

// openFile returns nil if the kernel or this group does not have the file.
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

// read passes the file's text to parse. It does nothing for nil and for a file that the kernel does not support.
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
	case errors.Is(err, unix.EOPNOTSUPP): // pressure files of a kernel with PSI disabled
		return nil
	case err != nil:
		return fmt.Errorf("read cgroup: %s: %w", f.path, notFound(err))
	}
	parse((*buffer)[:n])
	return nil
}

// pread reads the whole file, with one call if it fits the buffer.
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

// readFile reads a file that is not kept open. A file that does not exist is empty.
func (t *Tree) readFile(path string) (text []byte, err error) {
	err = t.read(&file{path: path, fd: -1}, func(b []byte) { text = bytes.Clone(b) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// notFound adds ErrNotFound to the errors that mean that a group or process is gone: ENODEV for a file that was open
// when its group was removed, ESRCH for a file of an ended process.
func notFound(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("%w: %w", errdefs.ErrNotFound, err)
	}
	return err
}

// number parses a decimal number. It returns Unlimited for "max" and for v1's value of no limit, the highest multiple
// of the page size below 2^63.
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

// unlimitedV1 is above the memory of any machine and below v1's value of no limit for every page size.
const unlimitedV1 = 1 << 62

// pairs calls each for every line "key number" of a flat keyed file.
func pairs(text []byte, each func(key []byte, value uint64)) {
	for len(text) > 0 {
		line, rest, _ := bytes.Cut(text, []byte("\n"))
		text = rest
		if key, value, ok := bytes.Cut(line, []byte(" ")); ok {
			each(key, number(value))
		}
	}
}
