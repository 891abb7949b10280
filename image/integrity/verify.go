package integrity

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/go-digest"
	tarsplit "github.com/vbatts/tar-split/tar/storage"
	"go.podman.io/storage"
	"go.podman.io/storage/pkg/archive"
	"golang.org/x/sys/unix"
)

// tarSplitSuffix is the suffix of the file in which storage keeps a layer's tar without the contents of its files.
const tarSplitSuffix = ".tar-split.gz"

// corruptError is about the files of a layer, as opposed to a disk error or an aborted verification.
type corruptError struct{ text string }

func (e corruptError) Error() string { return e.text }

func corruptf(format string, args ...any) error { return corruptError{fmt.Sprintf(format, args...)} }

// verifyFiles reassembles the tar of a layer from its files and the tar-split metadata, and compares its digest and
// size with the recorded ones. It reports a file that is missing or has other content; modes, owners, targets of links
// and the contents of files that the tar has as sparse are not checked. It takes no lock of storage, so it does not
// delay pulls.
func (c *Checker) verifyFiles(ctx context.Context, layer *storage.Layer) error {
	if layer.UncompressedDigest == "" {
		return nil // not from a pull
	}
	split, err := os.Open(filepath.Join(c.Metadata, layer.ID+tarSplitSuffix))
	if err != nil {
		return corruptf("tar-split metadata is missing: %v", err)
	}
	defer split.Close()
	plain, err := gzip.NewReader(bufio.NewReader(split))
	if err != nil {
		return corruptf("tar-split metadata is unreadable: %v", err)
	}
	dir, err := os.OpenFile(c.Files(layer.ID), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return corruptf("%v", err)
	}
	defer dir.Close()
	a := assembly{ctx: ctx, dir: dir, sum: layer.UncompressedDigest.Algorithm().Digester(), buf: make([]byte, 256<<10)}
	if err := a.run(tarsplit.NewJSONUnpacker(plain)); err != nil {
		return err
	}
	if got := a.sum.Digest(); got != layer.UncompressedDigest {
		return corruptf("its tar has digest %s, want %s", got, layer.UncompressedDigest)
	}
	if layer.UncompressedSize >= 0 && a.size != layer.UncompressedSize {
		return corruptf("its tar has %d bytes, want %d", a.size, layer.UncompressedSize)
	}
	return nil
}

// assembly reassembles one layer's tar.
type assembly struct {
	ctx  context.Context
	dir  *os.File
	sum  digest.Digester
	size int64
	buf  []byte
	// kind is the type in the last tar header.
	kind byte
}

func (a *assembly) run(entries tarsplit.Unpacker) error {
	for {
		if err := a.ctx.Err(); err != nil {
			return err
		}
		e, err := entries.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return corruptf("tar-split metadata is unreadable: %v", err)
		case e.Type == tarsplit.SegmentType:
			a.note(e.Payload)
			err = a.add(e.Payload)
		case e.Type == tarsplit.FileType && e.Size > 0:
			err = a.addFile(e)
		case e.Type == tarsplit.FileType && a.kind != tar.TypeXGlobalHeader: // not a file
			err = a.exists(e.GetName())
		}
		if err != nil {
			return err
		}
	}
}

// note records the type of the next file: its header is the last one in the segment before it. Headers are at multiples
// of 512.
func (a *assembly) note(segment []byte) {
	const block, kind, magic = 512, 156, 257 // of POSIX ustar
	for at := int(-a.size & (block - 1)); at+block <= len(segment); at += block {
		if header := segment[at : at+block]; bytes.HasPrefix(header[magic:], []byte("ustar")) {
			a.kind = header[kind]
		}
	}
}

func (a *assembly) add(b []byte) error {
	a.size += int64(len(b))
	_, err := a.sum.Hash().Write(b)
	return err
}

// addFile adds a file's content and compares its checksum with the one recorded by the pull.
func (a *assembly) addFile(e *tarsplit.Entry) error {
	name := e.GetName()
	f, err := a.openFile(name, e.Size)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := crc64.New(tarsplit.CRCTable)
	for left := e.Size; left > 0; {
		n, err := f.Read(a.buf[:min(left, int64(len(a.buf)))])
		if n == 0 && err != nil {
			return corruptf("file %q: %v", name, err)
		}
		left -= int64(n)
		if err := errors.Join(a.add(a.buf[:n]), a.ctx.Err()); err != nil {
			return err
		}
		_, _ = sum.Write(a.buf[:n]) // a hash never fails
	}
	if !bytes.Equal(sum.Sum(nil), e.Payload) {
		return corruptf("file %q has other content", name)
	}
	return nil
}

// openFile opens a regular file of that size. It is looked at first: an image can have a device under the name of a
// file, and opening one may have effects, as that of a watchdog has, which restarts the machine.
func (a *assembly) openFile(name string, size int64) (*os.File, error) {
	found, err := a.open(name, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	if info, err := found.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() != size {
		return nil, corruptf("%q is not a regular file of %d bytes", name, size)
	}
	f, err := os.Open("/proc/self/fd/" + strconv.Itoa(int(found.Fd())))
	if err != nil {
		return nil, openError(name, errors.Unwrap(err))
	}
	return f, nil
}

// exists checks an entry without content: a directory, link or empty file. A whiteout has another form on disk.
func (a *assembly) exists(name string) error {
	base := path.Base(path.Clean("/" + name))
	if strings.HasPrefix(base, archive.WhiteoutMetaPrefix) {
		return nil // an attribute of the directory
	}
	if hidden, ok := strings.CutPrefix(base, archive.WhiteoutPrefix); ok {
		name = path.Join(path.Dir(path.Clean("/"+name)), hidden)
	}
	f, err := a.open(name, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	return f.Close()
}

// open opens a file of the layer as if the layer were the root directory: links in it cannot leave it.
//
// Not pathrs-lite of filepath-securejoin: its OpenInRoot follows a link in the last component, which here is the
// file to open, and it needs three more system calls for each of some 100,000 files.
func (a *assembly) open(name string, flags uint64) (*os.File, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	for {
		fd, err := unix.Openat2(int(a.dir.Fd()), name, &how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), name), nil
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			if err := a.ctx.Err(); err != nil {
				return nil, err
			}
			continue
		case errors.Is(err, unix.ENOSYS):
			return nil, errors.New("the system call openat2 is missing (Linux 5.6)")
		}
		return nil, openError(name, err)
	}
}

// openError is the error of a file that cannot be opened, which is corrupt unless that says nothing about the file.
func openError(name string, err error) error {
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) {
		return os.NewSyscallError("open", err)
	}
	return corruptf("file %q: %v", name, err)
}
