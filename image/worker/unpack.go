package worker

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/image/child"
	"github.com/podd-project/podd/image/confine"
	"github.com/podd-project/podd/image/layers"
)

// unpackedFile is in a pull's directory: the bytes and files that its layers have unpacked so far.
const unpackedFile = "unpacked"

// maxImageFiles bounds the files of an image, in all of its layers.
const maxImageFiles = 4_000_000

// maxUnpackMemory bounds the memory of a process that unpacks or packs one layer without a pull, in bytes: a container
// can have made any number of files.
const maxUnpackMemory = 1 << 30

// limitUnpacking restricts a process in which containers/storage unpacks or packs one layer, before it does: no
// network, a share of the pull's memory, and its input counts against the limits of the pull that started it.
// Without a pull (a layer is repaired, a container is saved) only its memory is bounded.
func limitUnpacking() error {
	if err := confine.DenyNetwork(); err != nil {
		return err
	}
	dir := os.Getenv(pullDirEnv)
	if dir == "" {
		return errors.Join(child.PreferKilling(), confine.LimitMemory(child.HardMemory(maxUnpackMemory)))
	}
	if err := limitShare(envInt(maxMemoryEnv) / maxUnpacks); err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(dir, unpackedFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	m := &unpackMeter{mostBytes: envInt(maxBytesEnv), mostFiles: maxImageFiles}
	if err := errors.Join(m.share(file), file.Close()); err != nil {
		return err
	}
	layer, checked, err := os.Pipe()
	if err != nil {
		return err
	}
	from := os.Stdin
	os.Stdin = layer // the library's input
	go func() {
		if err := m.copy(checked, from); err != nil {
			child.Fail(err)
		}
		checked.Close()
	}()
	return nil
}

// limitShare bounds the memory of a process that unpacks next to others, in bytes. Above it the garbage collector works
// harder; the hard limit is higher. Zero: unlimited.
func limitShare(most uint64) error {
	if most > 0 {
		debug.SetMemoryLimit(int64(most))
	}
	return confine.LimitMemory(child.HardMemory(most))
}

// unpackMeter counts the unpacked bytes of the layers of one pull, which several processes do at the same time.
type unpackMeter struct {
	*unpacked
	mostBytes, mostFiles uint64
}

// unpacked is memory that the processes of one pull share.
type unpacked struct{ bytes, files atomic.Uint64 }

// share maps the counts of the pull, in a file that the first process makes.
func (m *unpackMeter) share(file *os.File) error {
	const size = int(unsafe.Sizeof(unpacked{}))
	if err := file.Truncate(int64(size)); err != nil { // a new file gets zeros, another one stays as it is
		return err
	}
	memory, err := unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	m.unpacked = (*unpacked)(unsafe.Pointer(unsafe.SliceData(memory))) // a page, so it is aligned
	return nil
}

// copy passes a tar on and counts its entries and their sizes. Headers pass before the content does, so that a file of
// which only the header is small (a sparse one) is refused before it is written. What follows the end counts too:
// storage keeps it, to reassemble the tar. A tar of small files is read and passed on in pieces of many files, not with
// system calls for each header.
func (m *unpackMeter) copy(to io.Writer, from io.Reader) error {
	const buffer = 64 << 10
	in, out := bufio.NewReaderSize(from, buffer), bufio.NewWriterSize(to, buffer)
	both := io.TeeReader(in, out)
	entries := tar.NewReader(both)
	for {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil { // the library reads the same and returns the error
			break
		}
		if err := m.add(h); err != nil {
			return err
		}
	}
	if _, err := io.Copy(io.MultiWriter(padding{m}, out), in); err != nil {
		return err
	}
	return out.Flush()
}

// padding counts the bytes written.
type padding struct{ *unpackMeter }

// Write is that of io.Writer.
func (p padding) Write(b []byte) (int, error) { return len(b), p.addBytes(int64(len(b))) }

// add counts an entry.
func (m *unpackMeter) add(h *tar.Header) error {
	files := m.files.Add(1)
	if err := m.addBytes(h.Size); err != nil {
		return err
	}
	if files > m.mostFiles {
		return fmt.Errorf("%s: more than %d files", layers.TooLarge, m.mostFiles)
	}
	return nil
}

// addBytes counts bytes of content or padding.
func (m *unpackMeter) addBytes(n int64) error {
	if bytes := m.bytes.Add(uint64(max(n, 0))); bytes > m.mostBytes {
		return fmt.Errorf("%s: more than %d bytes (max_image_bytes)", layers.TooLarge, m.mostBytes)
	}
	return nil
}
