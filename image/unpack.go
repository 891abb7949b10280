package image

import (
	"archive/tar"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/podd-project/podd/image/confine"
)

// unpackedFile is in a pull's directory: the bytes and files that its layers have unpacked so far.
const unpackedFile = "unpacked"

// maxUnpackMemory bounds the memory of a process that unpacks or packs one layer without a pull, in bytes: a container
// can have made any number of files.
const maxUnpackMemory = 1 << 30

// limitUnpacking restricts a process in which containers/storage unpacks or packs one layer, before it does: no
// network, and what it reads counts against the limits of the pull that started it. Without a pull (a layer is
// repaired, a container is saved) only its memory is bounded.
func limitUnpacking() error {
	if err := confine.DenyNetwork(); err != nil {
		return err
	}
	dir := os.Getenv(pullDirEnv)
	if dir == "" {
		return errors.Join(preferKilling(), confine.LimitMemory(hardMemory(maxUnpackMemory)))
	}
	file, err := os.OpenFile(filepath.Join(dir, unpackedFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	m := &unpackMeter{file: file, mostBytes: envInt(maxBytesEnv), mostFiles: envInt(maxFilesEnv)}
	if err := m.load(); err != nil {
		return err
	}
	layer, checked, err := os.Pipe()
	if err != nil {
		return err
	}
	from := os.Stdin
	os.Stdin = layer // what the library reads
	go func() {
		if err := m.copy(checked, from); err != nil {
			fail(err)
		}
		checked.Close()
	}()
	return nil
}

// unpackMeter counts what the layers of one pull unpack. The library unpacks them one after the other.
type unpackMeter struct {
	file                 *os.File
	bytes, files         uint64
	mostBytes, mostFiles uint64
}

// load reads what earlier layers have counted; an empty file is 0.
func (m *unpackMeter) load() error {
	var state [16]byte
	if n, err := m.file.ReadAt(state[:], 0); err != nil && !(errors.Is(err, io.EOF) && n == 0) {
		return err
	}
	m.bytes, m.files = binary.LittleEndian.Uint64(state[:]), binary.LittleEndian.Uint64(state[8:])
	return nil
}

func (m *unpackMeter) save() error {
	var state [16]byte
	binary.LittleEndian.PutUint64(state[:], m.bytes)
	binary.LittleEndian.PutUint64(state[8:], m.files)
	_, err := m.file.WriteAt(state[:], 0)
	return err
}

// copy passes a tar on and counts its entries and their sizes. Headers pass before the content does, so that a file of
// which only the header is small (a sparse one) is refused before it is written.
func (m *unpackMeter) copy(to io.Writer, from io.Reader) error {
	both := io.TeeReader(from, to)
	entries := tar.NewReader(both)
	for {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil { // the library reads the same and says what is wrong
			break
		}
		if err := m.add(h); err != nil {
			return err
		}
	}
	if err := m.save(); err != nil {
		return err
	}
	_, err := io.Copy(to, from)
	return err
}

// add counts an entry.
func (m *unpackMeter) add(h *tar.Header) error {
	m.files++
	m.bytes += uint64(max(h.Size, 0))
	if m.bytes > m.mostBytes {
		return fmt.Errorf("%s: more than %d bytes (max_image_bytes)", tooLargeText, m.mostBytes)
	}
	if m.files > m.mostFiles {
		return fmt.Errorf("%s: more than %d files (max_image_files)", tooLargeText, m.mostFiles)
	}
	return nil
}

// tooLargeText begins the error of an image that exceeds the limits. It passes through the library's error as text.
const tooLargeText = "the unpacked image is too large"
