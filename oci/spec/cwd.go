package spec

import (
	"path"
	"strings"
)

func (b *builder) cwd() error {
	dir := b.in.Config.GetWorkingDir()
	if dir == "" {
		dir = b.in.Image.WorkingDir
	}
	if dir == "" {
		dir = "/"
	}
	if err := checkText("the path", dir); err != nil {
		return err
	}
	if !path.IsAbs(dir) {
		return invalid("%q is not an absolute path", dir)
	}
	dir = path.Clean(dir)
	if processPath(dir) {
		return invalid("%q names a process, not a directory of the container", dir)
	}
	b.spec.Process.Cwd = dir
	return nil
}

// processPath reports whether a cleaned path leads into the entries of a process in /proc: with /proc/self/fd/7 as its
// working directory a process left the container in CVE-2024-21626. Symbolic links to such a path are up to the
// runtime, which alone sees the container's filesystem.
func processPath(dir string) bool {
	if dir == "/dev/fd" || strings.HasPrefix(dir, "/dev/fd/") {
		return true // a symbolic link to /proc/self/fd
	}
	rest, ok := strings.CutPrefix(dir, "/proc/")
	if !ok {
		return false
	}
	first, _, _ := strings.Cut(rest, "/")
	return first == "self" || first == "thread-self" || strings.Trim(first, "0123456789") == ""
}
