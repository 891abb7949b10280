package history

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/podd-project/podd/checkpoint"
)

// Names of segments are a number and one of these: the segment that is written, or a full one, compressed.
const (
	plainSuffix  = ".jsonl"
	sealedSuffix = ".jsonl.zst"
)

// segment is the segment that is appended to.
type segment struct {
	dir    string
	number int
	file   *os.File
	size   int64
}

func plainPath(dir string, number int) string {
	return filepath.Join(dir, fmt.Sprintf("%08d", number)+plainSuffix)
}

func sealedPath(dir string, number int) string {
	return filepath.Join(dir, fmt.Sprintf("%08d", number)+sealedSuffix)
}

// openLast opens the segment that the previous daemon has written to, without a line that it has not completed, or a
// new one.
func openLast(dir string) (*segment, error) {
	if err := checkpoint.Sweep(dir); err != nil {
		return nil, err
	}
	numbers, err := segments(dir)
	if err != nil {
		return nil, err
	}
	next := 1
	if n := len(numbers); n > 0 {
		last := numbers[n-1]
		if _, err := os.Lstat(sealedPath(dir, last)); errors.Is(err, fs.ErrNotExist) {
			return openSegment(dir, last)
		}
		// It was killed after it had compressed the segment.
		if err := os.Remove(plainPath(dir, last)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		next = last + 1
	}
	return openSegment(dir, next)
}

func openSegment(dir string, number int) (*segment, error) {
	f, err := os.OpenFile(plainPath(dir, number), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxBytes))
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	s := &segment{dir: dir, number: number, file: f, size: int64(bytes.LastIndexByte(data, '\n') + 1)}
	if err := f.Truncate(s.size); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return s, nil
}

func (s *segment) close() error { return s.file.Close() }

// append writes one line, or nothing.
func (s *segment) append(line []byte) error {
	n, err := s.file.Write(line)
	if err != nil {
		if n > 0 {
			err = errors.Join(err, s.file.Truncate(s.size))
		}
		return err
	}
	s.size += int64(n)
	return nil
}

// seal compresses the segment and returns the next one. If it is interrupted, openLast continues.
func (s *segment) seal() (*segment, error) {
	data, err := readPlain(plainPath(s.dir, s.number))
	if err != nil {
		return nil, err
	}
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault),
		zstd.WithWindowSize(2*segmentBytes))
	if err != nil {
		return nil, err
	}
	if err := checkpoint.WriteFile(sealedPath(s.dir, s.number), w.EncodeAll(data, nil), 0o600); err != nil {
		return nil, err
	}
	next, err := openSegment(s.dir, s.number+1)
	if err != nil {
		return nil, err
	}
	return next, errors.Join(os.Remove(plainPath(s.dir, s.number)), s.close())
}

// segments returns the numbers of the segments in dir, the oldest first.
func segments(dir string) ([]int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var numbers []int
	for _, e := range entries {
		name, found := strings.CutSuffix(strings.TrimSuffix(e.Name(), ".zst"), plainSuffix)
		if n, err := strconv.Atoi(name); found && err == nil && n > 0 {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return slices.Compact(numbers), nil
}

// prune removes the oldest segments until a full one can be added to the others.
func prune(dir string) error {
	numbers, err := segments(dir)
	if err != nil {
		return err
	}
	left := int64(maxBytes - 2*segmentBytes) // the active segment, and one being compressed
	for _, n := range slices.Backward(numbers) {
		info, err := os.Lstat(sealedPath(dir, n))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the active one
		}
		if err != nil {
			return err
		}
		if left -= info.Size(); left >= 0 {
			continue
		}
		if err := os.Remove(sealedPath(dir, n)); err != nil {
			return err
		}
	}
	return nil
}

// readSegment returns the lines of a segment.
func readSegment(dir string, number int) ([]byte, error) {
	data, err := readPlain(sealedPath(dir, number))
	if errors.Is(err, fs.ErrNotExist) {
		return readPlain(plainPath(dir, number))
	}
	if err != nil {
		return nil, err
	}
	r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxBytes))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.DecodeAll(data, nil)
}

// readPlain returns the content of a file, of maxBytes at most.
func readPlain(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxBytes))
}
