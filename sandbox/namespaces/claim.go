package namespaces

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// WriteClaim makes r.Claim a symbolic link to r.Net. Pin calls it before it creates anything else.
func (r Request) WriteClaim() error {
	if err := os.MkdirAll(filepath.Dir(r.Claim), 0o700); err != nil {
		return fmt.Errorf("claim network namespace: %w", err)
	}
	if err := os.Remove(r.Claim); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("claim network namespace: %w", err)
	}
	if err := os.Symlink(r.Net, r.Claim); err != nil {
		return fmt.Errorf("claim network namespace: %w", err)
	}
	return nil
}

// Claimed returns the pin file, mounted or not, that the link claim names, "" if either does not exist.
func Claimed(claim string) string {
	pin, err := os.Readlink(claim)
	if err != nil {
		return ""
	}
	if _, err := os.Lstat(pin); err != nil {
		return ""
	}
	return pin
}
