package checkpoint

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Prefixes of names that a crash may leave behind; Sweep removes these files and List never returns them.
const (
	newPrefix = ".new-"
	delPrefix = ".del-"
	tmpPrefix = ".tmp-"
)

// Create makes the directory parent/name appear atomically: fill writes into a temporary directory, which is then
// renamed into place. If fill fails, nothing is left. An existing directory is fs.ErrExist.
//
// Nothing is synced: after a power loss the directory may be absent, and its files empty or damaged. A record for which
// that must not be is written with WriteNew and passed to Commit.
func Create(parent, name string, fill func(dir string) error) error {
	if err := checkName(name); err != nil {
		return err
	}
	final := filepath.Join(parent, name)
	if _, err := os.Lstat(final); err == nil {
		// rename(2) would silently replace an empty directory.
		return fmt.Errorf("create %s: %w", final, fs.ErrExist)
	}
	tmp := filepath.Join(parent, newPrefix+name)
	if err := os.RemoveAll(tmp); err != nil {
		return fmt.Errorf("create %s: %w", final, err)
	}
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return fmt.Errorf("create %s: %w", final, err)
	}
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return fmt.Errorf("create %s: %w", final, err)
	}
	err := fill(tmp)
	if err == nil {
		err = os.Rename(tmp, final)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("create %s: %w", final, err), os.RemoveAll(tmp))
	}
	return nil
}

// Commit gives the record at path, in a directory that Create has made, the name final, and makes all of it survive a
// power loss. The record has that name only when its contents are on the disk: if it is damaged under its first name
// after a power loss, Commit has not returned.
func Commit(path, final string) error {
	dir := filepath.Dir(path)
	err := syncFile(path)
	if err == nil {
		err = os.Rename(path, filepath.Join(dir, final))
	}
	if err == nil {
		err = errors.Join(syncFile(dir), syncFile(filepath.Dir(dir)))
	}
	if err != nil {
		return fmt.Errorf("commit record: %w", err)
	}
	return nil
}

// Remove makes the directory parent/name disappear atomically, then deletes its contents. An absent directory is not an
// error.
func Remove(parent, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	gone := filepath.Join(parent, delPrefix+name)
	if err := os.RemoveAll(gone); err != nil {
		return fmt.Errorf("remove record: %w", err)
	}
	err := os.Rename(filepath.Join(parent, name), gone)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove record: %w", err)
	}
	// Sync before deleting the contents: after a power loss the record is either whole or gone.
	if err := syncFile(parent); err != nil {
		return err
	}
	if err := os.RemoveAll(gone); err != nil {
		return fmt.Errorf("remove record: %w", err)
	}
	return nil
}

// Temporary returns the path of a new directory or file in parent. If a crash leaves it, Sweep removes it.
func Temporary(parent, name string) string {
	return filepath.Join(parent, tmpPrefix+name+"-"+rand.Text())
}

// List returns the names of the record directories in parent, sorted. An absent parent has none.
func List(parent string) ([]string, error) {
	entries, err := os.ReadDir(parent)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list records: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Sweep removes what crashes left in parent: incomplete and partly deleted directories, temporary files.
func Sweep(parent string) error {
	entries, err := os.ReadDir(parent)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("sweep records: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if leftover(e.Name()) {
			errs = append(errs, os.RemoveAll(filepath.Join(parent, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// Quarantine moves path, a record that could not be read, into dir for inspection, and returns its new path.
func Quarantine(path, dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("quarantine %s: %w", path, err)
	}
	to := filepath.Join(dir, filepath.Base(path)+"-"+strconv.FormatInt(time.Now().UnixNano(), 36))
	if err := os.Rename(path, to); err != nil {
		return "", fmt.Errorf("quarantine %s: %w", path, err)
	}
	return to, errors.Join(syncFile(dir), syncFile(filepath.Dir(path)))
}

func leftover(name string) bool {
	return strings.HasPrefix(name, newPrefix) || strings.HasPrefix(name, delPrefix) ||
		strings.HasPrefix(name, tmpPrefix)
}

// checkName prevents ids from clients from being used as paths.
func checkName(name string) error {
	if name == "" || strings.HasPrefix(name, ".") || strings.ContainsAny(name, "/\x00") || len(name) > 200 {
		return fmt.Errorf("record name %q is not a plain file name", name)
	}
	return nil
}
