// Package logfile opens CRI logs. podd and its stdio processes open logs only by this package: a container may be able
// to write to the log directory, as agents that collect logs often can, and must not choose the file (CVE-2025-0750).
//
// A log is opened below its pod's directory, whose links are resolved once, when the pod is created. No part of its
// path may be a symbolic link from then on, nor a mount below the directory, and it must be a regular file with one
// name: a FIFO would make the opener wait, opening a device may have effects, and a file with another name may be one
// of the node. The directory itself may be another one: people remove all logs of a full disk, and the kubelet makes it
// again. The package renames nothing, and removes only empty logs.
package logfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/openat"
)

// Dir is a pod's log_directory as it was when the pod was created.
type Dir struct {
	// Path is absolute and has no symbolic link.
	Path string `json:"path"`
	// Device and Inode were those of the directory. An earlier podd, to which a node may return, opens no other one.
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
}

// Log is the log of one container; the zero value is none, and the output is discarded.
type Log struct {
	Dir Dir `json:"dir,omitzero"`
	// Name is the CRI log_path, relative to Dir.
	Name string `json:"name,omitempty"`
}

// Path is the log's path, for messages.
func (l Log) Path() string { return filepath.Join(l.Dir.Path, l.Name) }

// NoteDir creates the directory if it does not exist, and returns what identifies it from now on. The path may lead
// through symbolic links of the administrator, but the directory itself must not be one: the kubelet makes it.
func NoteDir(path string) (Dir, error) {
	if !filepath.IsAbs(path) {
		return Dir{}, fmt.Errorf("log_directory %q is not an absolute path: %w", path, errdefs.ErrInvalidArgument)
	}
	path = filepath.Clean(path)
	if err := os.MkdirAll(path, 0o755); err != nil {
		return Dir{}, fmt.Errorf("log_directory: %w", err)
	}
	f, err := os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENOTDIR) {
		return Dir{}, fmt.Errorf("log_directory %s is a symbolic link or no directory: %w", path,
			errdefs.ErrInvalidArgument)
	}
	if err != nil {
		return Dir{}, fmt.Errorf("log_directory: %w", err)
	}
	defer f.Close()
	real, err := os.Readlink(openat.Path(f))
	if err != nil {
		return Dir{}, fmt.Errorf("log_directory: %w", err)
	}
	d, err := identify(f)
	d.Path = real
	return d, err
}

func identify(f *os.File) (Dir, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Dir{}, &fs.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	return Dir{Device: uint64(st.Dev), Inode: st.Ino}, nil // Dev has 32 bits on some architectures
}

// open opens the directory: errdefs.ErrFailedPrecondition if it is missing or a part of its path has become a link.
func (d Dir) open() (*os.File, error) {
	f, err := openat.Open(nil, d.Path, unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	switch {
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR):
		return nil, fmt.Errorf("log_directory %s: a part of it has become a symbolic link or no directory: restore it or "+
			"create the pod again: %w", d.Path, errdefs.ErrFailedPrecondition)
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("log_directory: %w: make it again: %w", err, errdefs.ErrFailedPrecondition)
	case err != nil:
		return nil, fmt.Errorf("log_directory: %w", err)
	}
	return f, nil
}

// Prepare creates the directories between the pod's directory and the log, and reports whether the log could be opened.
// Errors: errdefs.ErrInvalidArgument if the log's name leads away from the directory or to something else than a log,
// those of Open else.
func (l Log) Prepare() error {
	if err := checkName(l.Name); err != nil {
		return err
	}
	at, err := l.Dir.open()
	if err != nil {
		return err
	}
	defer func() { at.Close() }()
	for part := range strings.SplitSeq(filepath.Dir(filepath.Clean(l.Name)), "/") {
		next, err := openat.MakeDir(at, part)
		if err != nil {
			return l.invalid(err)
		}
		at.Close()
		at = next
	}
	f, err := openLog(at, filepath.Base(l.Name), unix.O_PATH)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return l.invalid(err)
	}
	return f.Close()
}

func (l Log) invalid(err error) error {
	return fmt.Errorf("log_path %q: %w: %w", l.Name, err, errdefs.ErrInvalidArgument)
}

// Open opens the log for appending, and creates it if it does not exist, but no directory. Errors:
// errdefs.ErrFailedPrecondition if the log's path has a symbolic link or a mount, or is not a regular file with one
// name; fs.ErrNotExist if a directory is missing.
func (l Log) Open() (*os.File, error) {
	parent, err := l.openParent()
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	f, err := openOrMakeLog(parent, filepath.Base(l.Name))
	return f, l.explain(err)
}

// Tail returns the whole lines in the last limit bytes of the log. Errors: those of Open.
func (l Log) Tail(limit int64) (string, error) {
	parent, err := l.openParent()
	if err != nil {
		return "", err
	}
	defer parent.Close()
	f, err := openLog(parent, filepath.Base(l.Name), unix.O_RDONLY)
	if err != nil {
		return "", l.explain(err)
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return "", err
	}
	from := max(0, size-limit)
	text, err := io.ReadAll(io.NewSectionReader(f, from, limit))
	if _, lines, _ := bytes.Cut(text, []byte("\n")); from > 0 && len(lines) > 0 { // else the end of one long line
		text = lines
	}
	return string(text), err
}

// RemoveEmpty removes the log if nothing was written to it. An absent log is not an error, the others are those of
// Open.
func (l Log) RemoveEmpty() error {
	parent, err := l.openParent()
	if err != nil {
		return ignoreAbsent(err)
	}
	defer parent.Close()
	name := filepath.Base(l.Name)
	f, err := openLog(parent, name, unix.O_PATH)
	if err != nil {
		return ignoreAbsent(l.explain(err))
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() > 0 {
		return err
	}
	return ignoreAbsent(unix.Unlinkat(int(parent.Fd()), name, 0))
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// belowDir is the resolution of a path below the pod's directory.
const belowDir = openat.NoLinks | unix.RESOLVE_NO_XDEV

// openParent opens the directory that the log is in.
func (l Log) openParent() (*os.File, error) {
	if err := checkName(l.Name); err != nil {
		return nil, err
	}
	dir, err := l.Dir.open()
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	parent, err := openat.Open(dir, filepath.Dir(l.Name), unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY, Resolve: belowDir,
	})
	return parent, l.explain(err)
}

// explain adds the path and the kind to the error of opening the log.
func (l Log) explain(err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("open log %s: %w", l.Path(), err)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EXDEV) ||
		errors.Is(err, errNoLog) {
		err = fmt.Errorf("%w: %w", err, errdefs.ErrFailedPrecondition)
	}
	return err
}

// checkName refuses ".." everywhere, also where the cleaned path would stay in the directory.
func checkName(name string) error {
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return fmt.Errorf("log_path %q leaves the log directory: %w", name, errdefs.ErrInvalidArgument)
		}
	}
	if !filepath.IsLocal(name) || filepath.Clean(name) == "." || strings.HasSuffix(name, "/") ||
		strings.ContainsAny(name, "\x00\n") {
		return fmt.Errorf("log_path %q is not the path of a file below the log directory: %w", name,
			errdefs.ErrInvalidArgument)
	}
	return nil
}

// attempts bounds how often a log is looked up while somebody creates and removes it.
const attempts = 64

// logMode is that of containerd, CRI-O and Docker: collectors that are not root read logs as members of its group.
const logMode = 0o640

// openOrMakeLog opens the file name in at for appending, and creates it if it does not exist.
func openOrMakeLog(at *os.File, name string) (f *os.File, err error) {
	const flags = unix.O_WRONLY | unix.O_APPEND
	for range attempts {
		if f, err = openLog(at, name, flags); !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
		f, err = openat.Open(at, name, unix.OpenHow{
			Flags: flags | unix.O_CREAT | unix.O_EXCL, Mode: logMode, Resolve: openat.NoLinks,
		})
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
	return nil, err
}

// errNoLog is the error of a file that is not a log.
var errNoLog = errors.New("the file is not a regular file with one name")

// openLog opens the existing file name in at, if it is a log. It is looked at first: nothing but a log is opened.
// O_NONBLOCK: a process that holds a lease of the file would delay the open.
func openLog(at *os.File, name string, flags int) (*os.File, error) {
	f, err := openat.Open(at, name, unix.OpenHow{
		Flags: unix.O_PATH | unix.O_NOFOLLOW, Resolve: belowDir,
	})
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		f.Close()
		return nil, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink > 1 {
		f.Close()
		return nil, errNoLog
	}
	if flags == unix.O_PATH {
		return f, nil
	}
	defer f.Close()
	return os.OpenFile(openat.Path(f), flags|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
}
