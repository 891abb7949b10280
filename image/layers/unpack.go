package layers

import (
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"os"

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
	tr := tar.NewReader(from)
	tr.RawAccounting = true
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = s.unpackEntry(tr, h, files, split)
		}
		if err != nil {
			return err
		}
	}
	if err := split.segment(tr.RawBytes()); err != nil {
		return err
	}
	if err := s.copyPadding(from, split); err != nil {
		return err
	}
	s.hasRoot = files.hasRoot
	return files.setDirTimes()
}

// unpackEntry writes one entry. It is counted before its content is read, so that a file of which only the header is
// small (a sparse one) is refused before it is written.
func (s *staged) unpackEntry(tr *tar.Reader, h *tar.Header, files *tree, split *tarSplit) error {
	if err := s.count(1, h.Size); err != nil {
		return err
	}
	if err := split.segment(tr.RawBytes()); err != nil {
		return err
	}
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil // not a file
	}
	sum := crc64.New(tarsplit.CRCTable)
	content := &counter{from: io.TeeReader(tr, sum)}
	if err := files.add(h, content, split.next); err != nil {
		return fmt.Errorf("%.300q: %w", h.Name, err)
	}
	if !isWhiteout(h.Name) {
		s.uids[uint32(h.Uid)], s.gids[uint32(h.Gid)] = struct{}{}, struct{}{}
	}
	return errors.Join(split.file(h.Name, content.n, sum.Sum(nil)), split.segment(tr.RawBytes()))
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
