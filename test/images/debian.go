package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// packages are what the images are made of. Alternatives after | are the name in a newer Debian.
var packages = []string{
	"busybox", "util-linux", "nginx", "libc6", "libcrypt1", "libpcre2-8-0", "libssl3|libssl3t64", "zlib1g",
}

// debian is a directory into which Debian packages were unpacked.
type debian struct{ root string }

// unpackDebian downloads the packages into debs, unless they are there, and unpacks them into root.
func unpackDebian(ctx context.Context, debs, root string) (*debian, error) {
	if err := os.MkdirAll(debs, 0o755); err != nil {
		return nil, err
	}
	for _, p := range packages {
		deb, err := download(ctx, debs, strings.Split(p, "|"))
		if err != nil {
			return nil, err
		}
		if err := run(ctx, debs, "dpkg-deb", "-x", deb, root); err != nil {
			return nil, err
		}
	}
	return &debian{root: root}, nil
}

// download returns the file of the first package of names that exists, fetching it when it is not there.
func download(ctx context.Context, dir string, names []string) (string, error) {
	var errs []error
	for _, name := range names {
		if deb := downloaded(dir, name); deb != "" {
			return deb, nil
		}
		if err := fetch(ctx, dir, name); err != nil {
			errs = append(errs, err)
			continue
		}
		if deb := downloaded(dir, name); deb != "" {
			return deb, nil
		}
	}
	return "", fmt.Errorf("download Debian package %s: %w", strings.Join(names, " or "), errors.Join(errs...))
}

// fetch downloads one package; an index that is missing or out of date is updated once.
func fetch(ctx context.Context, dir, name string) error {
	err := run(ctx, dir, "apt-get", "-qq", "download", name)
	if err == nil || os.Geteuid() != 0 {
		return err
	}
	if err := run(ctx, dir, "apt-get", "-qq", "update"); err != nil {
		return err
	}
	return run(ctx, dir, "apt-get", "-qq", "download", name)
}

// downloaded returns the package's file, or nothing.
func downloaded(dir, name string) string {
	// <name>_<version>_<arch>.deb; a name has no underscore
	found, err := filepath.Glob(filepath.Join(dir, name+"_*.deb"))
	if err != nil || len(found) == 0 {
		return ""
	}
	return found[len(found)-1]
}

// run runs a program and puts what it printed into the error.
func run(ctx context.Context, dir, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// find returns the path of name below one of dirs of the unpacked tree, links inside the tree followed.
func (d *debian) find(name string, dirs ...string) (string, error) {
	for _, dir := range dirs {
		found, err := filepath.Glob(filepath.Join(d.root, dir, name))
		if err != nil || len(found) == 0 {
			continue
		}
		return d.follow(found[0])
	}
	return "", fmt.Errorf("no %s in %s of the packages %s: %w", name, strings.Join(dirs, " "), strings.Join(packages, " "),
		os.ErrNotExist)
}

// follow resolves symbolic links; an absolute target means below the tree's root.
func (d *debian) follow(path string) (string, error) {
	for range 10 {
		target, err := os.Readlink(path)
		if err != nil {
			return path, nil // not a link: the file itself
		}
		if filepath.IsAbs(target) {
			path = filepath.Join(d.root, target)
		} else {
			path = filepath.Join(filepath.Dir(path), target)
		}
	}
	return "", fmt.Errorf("too many links at %s", path)
}
