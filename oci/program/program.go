// Package program installs the small programs that are embedded in podd, compressed. Its callers are the packages that
// embed them: oci/pause, oci/runc/initproxy, oci/runc/thaw, oci/runc/starter and oci/shim.
package program

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/podd-project/podd/checkpoint"
)

// ErrNotBuilt is the error of a podd that was built without the program.
var ErrNotBuilt = errors.New("podd was built without it: run make embedded")

// errMixed is the error of a podd that was built with a program and the digest of another one.
var errMixed = errors.New("the embedded program does not have the embedded digest: run make clean embedded")

// Install unpacks the program of the embedded files to path with this mode, and returns the absolute path. The program
// is bin/<last element of path>.gz, its SHA-256 in hexadecimal is in bin/<last element of path>.sha256. A file with the
// same content and mode is left alone; another version is replaced by rename, because a running program cannot be
// written to and must not change.
//
// The content of an installed file is compared by its digest: the program itself, which is megabytes of podd's memory
// once it is read, is only read to be installed.
//
// The directory is made, or changed to be, as open as the program, and writable by its owner.
func Install(embedded fs.FS, path string, mode fs.FileMode) (string, error) {
	name := filepath.Base(path)
	path, err := filepath.Abs(path)
	if err == nil {
		err = install(embedded, "bin/"+name, path, mode)
	}
	if err != nil {
		return "", fmt.Errorf("install %s: %w", name, err)
	}
	return path, nil
}

func install(embedded fs.FS, from, path string, mode fs.FileMode) error {
	digest, err := fs.ReadFile(embedded, from+".sha256")
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNotBuilt
	}
	if err != nil {
		return err
	}
	want := strings.TrimSpace(string(digest))
	if err := makeDir(filepath.Dir(path), mode|0o200); err != nil {
		return err
	}
	if installed(path, want, mode) {
		return nil
	}
	packed, err := embedded.Open(from + ".gz")
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNotBuilt
	}
	if err != nil {
		return err
	}
	defer packed.Close()
	return checkpoint.FillFileSync(path, func(w io.Writer) error { return unpack(w, packed, want) }, mode)
}

// installed reports whether the file at path has this mode, and content with this digest.
func installed(path, digest string, mode fs.FileMode) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != mode {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return err == nil && hex.EncodeToString(h.Sum(nil)) == digest
}

// unpack writes a compressed program, which must have this digest. It goes through small buffers: a program as a whole
// would make the heap larger than podd needs it afterwards.
func unpack(w io.Writer, packed io.Reader, digest string) error {
	r, err := gzip.NewReader(packed)
	if err != nil {
		return err
	}
	h := sha256.New()
	if _, err := io.Copy(io.MultiWriter(w, h), r); err != nil {
		return err
	}
	if hex.EncodeToString(h.Sum(nil)) != digest {
		return errMixed
	}
	return nil
}

// makeDir makes a directory, and its parents with mode 0755. The mode of an existing one is changed only if it differs:
// the disk may be read-only.
func makeDir(dir string, mode fs.FileMode) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() == mode {
		return err
	}
	return os.Chmod(dir, mode)
}
