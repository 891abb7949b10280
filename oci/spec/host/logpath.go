package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// LogPath joins a pod's log_directory and a container's log_path, and creates the directories between them. dir comes
// from the kubelet and is trusted; below it no symbolic link is accepted, because the monitor opens the file as root
// (CVE-2025-0750). Errors: ErrInvalidArgument if the path leaves dir or does not name a file.
func LogPath(dir, rel string) (string, error) {
	if !filepath.IsAbs(dir) {
		return "", invalid("log_directory %q is not an absolute path", dir)
	}
	if err := checkLocalLog(rel); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	at, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return "", err
	}
	defer func() { at.Close() }()
	parts := strings.Split(filepath.Clean(rel), "/")
	last := len(parts) - 1
	for _, part := range parts[:last] {
		next, err := openOrMakeDir(at, part)
		if err != nil {
			return "", invalid("log_path %q: %v", rel, err)
		}
		at.Close()
		at = next
	}
	if err := checkLogFile(at, parts[last]); err != nil {
		return "", invalid("log_path %q: %v", rel, err)
	}
	return filepath.Join(dir, rel), nil
}

// checkLocalLog refuses ".." everywhere, also where the cleaned path would stay in the directory.
func checkLocalLog(rel string) error {
	for part := range strings.SplitSeq(rel, "/") {
		if part == ".." {
			return invalid("log_path %q leaves the log directory", rel)
		}
	}
	if !filepath.IsLocal(rel) || filepath.Clean(rel) == "." || strings.HasSuffix(rel, "/") ||
		strings.ContainsAny(rel, "\x00\n") {
		return invalid("log_path %q is not the path of a file below the log directory", rel)
	}
	return nil
}

// openOrMakeDir opens the directory name in at, and creates it if it does not exist; a symbolic link is an error.
func openOrMakeDir(at *os.File, name string) (*os.File, error) {
	err := unix.Mkdirat(int(at.Fd()), name, 0o755)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, &fs.PathError{Op: "mkdir", Path: name, Err: err}
	}
	return openat2(at, name, unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// checkLogFile accepts a regular file or none.
func checkLogFile(at *os.File, name string) error {
	var st unix.Stat_t
	err := unix.Fstatat(int(at.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errors.New("the path exists and is not a regular file")
	}
	return nil
}
