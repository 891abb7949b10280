package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// MaxSize is the maximum size of a record file in bytes.
const MaxSize = 8 << 20

// recordMode is the mode of record files: a record can hold environment variables with secrets.
const recordMode = 0o600

// Errors of Read, besides those of the filesystem. A missing record is fs.ErrNotExist.
var (
	// ErrCorrupt: the file is truncated, empty, altered or not a record.
	ErrCorrupt = errors.New("corrupt record")
	// ErrNewer: a newer podd wrote the record, in a format that this one does not know.
	ErrNewer = errors.New("record was written by a newer version")
)

// IsPermanent reports whether err, from Read, is final: this program cannot read the record, now or later. Any other
// error (no file descriptors, an I/O error, a filesystem that is not mounted yet) may go away.
func IsPermanent(err error) bool {
	return errors.Is(err, ErrCorrupt) || errors.Is(err, ErrNewer) || errors.Is(err, fs.ErrNotExist)
}

// header is the first line of a record file.
type header struct {
	Version int    `json:"v"`
	SHA256  string `json:"sha256"`
}

// Write replaces the record at path with v, in format version, atomically: after a crash at any point the file is
// either the old record or the new one. If it returns nil, the record survives a power loss.
func Write(path string, version int, v any) error { return write(path, version, v, WriteFileSync) }

// WriteUnsynced is Write for a record that may be lost in a power failure: the earlier record, a damaged one or none is
// at path then. It survives the death of this program. Sync makes it survive a power failure too.
func WriteUnsynced(path string, version int, v any) error { return write(path, version, v, WriteFile) }

// Sync completes WriteUnsynced: it syncs the record at path and its name.
func Sync(path string) error {
	if err := syncFile(path); err != nil {
		return err
	}
	return syncFile(filepath.Dir(path))
}

func write(path string, version int, v any, file func(string, []byte, fs.FileMode) error) error {
	data, err := encode(path, version, v)
	if err != nil {
		return err
	}
	if err := file(path, data, recordMode); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	return nil
}

// WriteNew writes v as the record at path in a directory that Create is filling. It does not replace atomically,
// because the directory is not visible yet, nor sync anything: Commit does. An existing record is fs.ErrExist.
func WriteNew(path string, version int, v any) error {
	data, err := encode(path, version, v)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, recordMode)
	if err == nil {
		err = fillFile(f, content(data), recordMode, false)
	}
	if err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	return nil
}

// encode returns the bytes of a record file.
func encode(path string, version int, v any) ([]byte, error) {
	body, err := PlainJSON(v, "  ")
	if err != nil {
		return nil, fmt.Errorf("encode record %s: %w", path, err)
	}
	if len(body) > MaxSize {
		return nil, fmt.Errorf("%w: record %s has %d bytes, more than the limit of %d",
			errdefs.ErrResourceExhausted, path, len(body), MaxSize)
	}
	sum := sha256.Sum256(body)
	line, err := json.Marshal(header{Version: version, SHA256: hex.EncodeToString(sum[:])})
	if err != nil {
		return nil, fmt.Errorf("encode record %s: %w", path, err)
	}
	return append(append(line, '\n'), body...), nil
}

// PlainJSON encodes v as JSON and a newline, with <, > and & as they are: encoding/json writes six bytes for each, for
// browsers.
func PlainJSON(v any, indent string) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetIndent("", indent)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return out.Bytes(), err
}

// Read decodes the record at path into v. It accepts formats up to version; a record in a newer one is ErrNewer, an
// invalid one ErrCorrupt, an absent one fs.ErrNotExist. Unknown fields are ignored, so that a daemon can be downgraded
// within one format.
func Read(path string, version int, v any) error {
	data, err := readCapped(path)
	if err != nil {
		return err
	}
	if err := decode(data, version, v); err != nil {
		return fmt.Errorf("read record %s: %w", path, err)
	}
	return nil
}

func decode(data []byte, version int, v any) error {
	line, body, found := bytes.Cut(data, []byte{'\n'})
	if !found {
		return fmt.Errorf("%w: no header line (%d bytes)", ErrCorrupt, len(data))
	}
	var h header
	if err := json.Unmarshal(line, &h); err != nil {
		return fmt.Errorf("%w: header: %v", ErrCorrupt, err)
	}
	sum := sha256.Sum256(body)
	if h.SHA256 != hex.EncodeToString(sum[:]) {
		return fmt.Errorf("%w: checksum differs", ErrCorrupt)
	}
	if h.Version > version {
		return fmt.Errorf("%w: format %d, this podd reads up to %d", ErrNewer, h.Version, version)
	}
	if h.Version < 1 {
		return fmt.Errorf("%w: format %d", ErrCorrupt, h.Version)
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%w: body: %v", ErrCorrupt, err)
	}
	return nil
}

func readCapped(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // do not block on a FIFO
	if err != nil {
		return nil, err
	}
	defer f.Close()
	switch info, err := f.Stat(); {
	case err != nil:
		return nil, fmt.Errorf("read record: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("read record %s: %w: not a regular file", path, ErrCorrupt)
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxSize+4096))
	if err != nil {
		return nil, fmt.Errorf("read record %s: %w", path, err)
	}
	return data, nil
}
