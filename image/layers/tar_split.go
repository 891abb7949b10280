package layers

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"

	tarsplit "github.com/vbatts/tar-split/tar/storage"
)

// tarSplit writes the metadata from which storage reassembles a layer's tar: its headers, padding and sparse files as
// they are, and for each other file the name and the checksum. The library's own packer refuses a path that the tar has
// twice.
type tarSplit struct {
	disk *os.File
	out  *bufio.Writer
	json *json.Encoder
	// next is the position of the next entry.
	next int
}

// newTarSplit creates the file path, with at most as many bytes as most allows.
func newTarSplit(path string, most bounded) (*tarSplit, error) {
	const buffer = 64 << 10
	disk, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	most.to = disk
	out := bufio.NewWriterSize(most, buffer)
	return &tarSplit{disk: disk, out: out, json: json.NewEncoder(out)}, nil
}

func (t *tarSplit) close() error { return errors.Join(t.out.Flush(), t.disk.Close()) }

func (t *tarSplit) add(e tarsplit.Entry) error {
	e.Position = t.next
	t.next++
	return t.json.Encode(e)
}

// segment adds bytes of the tar as they are.
func (t *tarSplit) segment(raw []byte) error {
	if len(raw) == 0 {
		return nil
	}
	return t.add(tarsplit.Entry{Type: tarsplit.SegmentType, Payload: raw})
}

// file adds an entry of the tar, whose content is that of the file name.
func (t *tarSplit) file(name string, size int64, sum []byte) error {
	e := tarsplit.Entry{Type: tarsplit.FileType, Size: size}
	if size > 0 {
		e.Payload = sum
	}
	e.SetName(name)
	return t.add(e)
}

// withReplaced writes a copy in which the entries at some positions name no file: a later entry of the
// tar has replaced it. Their contents, in these files, are in the copy; "" is for an entry without content.
func (t *tarSplit) withReplaced(replaced map[int]string, to *tarSplit) error {
	if err := t.out.Flush(); err != nil {
		return err
	}
	if _, err := t.disk.Seek(0, io.SeekStart); err != nil {
		return err
	}
	entries := json.NewDecoder(bufio.NewReader(t.disk))
	for {
		var e tarsplit.Entry
		err := entries.Decode(&e)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		content, ok := replaced[e.Position]
		switch {
		case !ok:
			err = to.add(e)
		case content != "":
			err = to.content(content)
		}
		if err != nil {
			return err
		}
	}
}

// content adds the bytes of a file as they are.
func (t *tarSplit) content(path string) error {
	const piece = 64 << 10 // an entry is read as a whole
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	buffer := make([]byte, piece)
	for {
		n, err := io.ReadFull(file, buffer)
		if err := t.segment(buffer[:n]); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// compressTarSplit writes a copy of the metadata as storage has it.
func (s *staged) compressTarSplit() error {
	from, err := os.Open(s.tarSplit())
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.Create(s.tarSplit() + ".gz")
	if err != nil {
		return err
	}
	packed := gzip.NewWriter(to)
	_, err = io.Copy(packed, from)
	return errors.Join(err, packed.Close(), to.Close())
}
