package layers

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"os"
	"strings"

	"github.com/vbatts/tar-split/archive/tar"
	tarsplit "github.com/vbatts/tar-split/tar/storage"
)

// unpackTar writes the files and the tar-split metadata of a tar in one pass, to the end of its padding, which belongs
// to the digest.
func (s *staged) unpackTar(from io.Reader) error {
	files, err := openTree(s.files(), s.replaced())
	if err != nil {
		return err
	}
	defer files.close()
	split, err := newTarSplit(s.tarSplit(), s.metadata)
	if err != nil {
		return err
	}
	if err := s.unpackEntries(from, files, split); err != nil {
		return errors.Join(err, split.close())
	}
	return s.writeReplaced(split, files.replaced)
}

func (s *staged) unpackEntries(from io.Reader, files *tree, split *tarSplit) error {
	s.uids, s.gids = map[uint32]struct{}{}, map[uint32]struct{}{}
	entries := newEntries(from)
	for {
		h, err := entries.next()
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if err := split.segment(entries.raw); err != nil {
			return err
		}
		if err != nil {
			break
		}
		if err := s.unpackEntry(entries, h, files, split); err != nil {
			return err
		}
	}
	if err := s.copyPadding(from, split); err != nil {
		return err
	}
	s.hasRoot = files.hasRoot
	return files.setDirTimes()
}

// unpackEntry writes one entry. It is counted before its content is read, so that a file of which only the header is
// small (a sparse one) is refused before it is written.
func (s *staged) unpackEntry(from *entries, h *tar.Header, files *tree, split *tarSplit) error {
	if err := s.count(1, h.Size); err != nil {
		return err
	}
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil // not a file
	}
	sum := crc64.New(tarsplit.CRCTable)
	content, position := &counter{from: io.TeeReader(from.tar, sum)}, split.next
	sparse := isSparse(h)
	if sparse { // its data do not follow from the file
		if err := split.file(h.Name, 0, nil); err != nil {
			return err
		}
		from.to = split.segment
		defer func() { from.to = nil }()
	}
	if err := files.add(h, content, position); err != nil {
		return fmt.Errorf("%.300q: %w", h.Name, err)
	}
	if !isWhiteout(h.Name) {
		s.uids[uint32(h.Uid)], s.gids[uint32(h.Gid)] = struct{}{}, struct{}{}
	}
	if sparse {
		return nil
	}
	return split.file(h.Name, content.n, sum.Sum(nil))
}

// isSparse reports whether the tar leaves out the holes of a file (GNU tar's formats for PAX).
func isSparse(h *tar.Header) bool {
	for record := range h.PAXRecords {
		if strings.HasPrefix(record, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// maxRaw bounds the memory that the headers of one entry take: tar reads at most 1 MiB as one, but any number of them.
const maxRaw = 16 << 20

// entries reads the entries of a tar, and keeps or passes on the bytes.
type entries struct {
	from io.Reader
	tar  *tar.Reader
	// raw are the bytes that next has read: padding, headers, maps of sparse files, and content that was not read.
	raw []byte
	// to, if set, gets the bytes that are read; failed is its first error, which the library may drop.
	to     func(raw []byte) error
	failed error
}

func newEntries(from io.Reader) *entries {
	e := &entries{from: from}
	e.tar = tar.NewReader(e)
	return e
}

// next returns the next entry.
func (e *entries) next() (*tar.Header, error) {
	e.raw = e.raw[:0]
	e.to = func(raw []byte) error {
		if len(e.raw)+len(raw) > maxRaw {
			return fmt.Errorf("an entry has more than %d bytes of headers", maxRaw)
		}
		e.raw = append(e.raw, raw...)
		return nil
	}
	defer func() { e.to = nil }()
	h, err := e.tar.Next()
	return h, cmp.Or(e.failed, err)
}

// Read is that of io.Reader, for tar.
func (e *entries) Read(p []byte) (int, error) {
	n, err := e.from.Read(p)
	if e.to != nil && e.failed == nil {
		e.failed = e.to(p[:n])
	}
	return n, cmp.Or(e.failed, err)
}

// copyPadding takes what follows the end of the tar.
func (s *staged) copyPadding(from io.Reader, split *tarSplit) error {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err := errors.Join(s.count(0, int64(n)), split.segment(buffer[:n])); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// writeReplaced closes the metadata, in which no file may be named that a later entry has replaced.
func (s *staged) writeReplaced(split *tarSplit, replaced map[int]string) (err error) {
	defer func() { err = errors.Join(err, split.close()) }()
	if len(replaced) == 0 {
		return nil
	}
	to, err := newTarSplit(s.tarSplit()+".new", s.metadata)
	if err != nil {
		return err
	}
	if err := errors.Join(split.withReplaced(replaced, to), to.close()); err != nil {
		return err
	}
	return os.Rename(s.tarSplit()+".new", s.tarSplit())
}
