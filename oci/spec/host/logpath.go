package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// LogPath joins a pod's log_directory and a container's log_path, and makes the directories between them. dir is the
// kubelet's and is trusted; below it nothing may be a symbolic link, for the monitor will open the file as root
// (CVE-2025-0750). ErrInvalidArgument when the path would leave dir or does not name a file.
func LogPath(dir, rel string) (string, error) {
	if !filepath.IsAbs(dir) {
		return "", invalid("log_directory %q is not an absolute path", dir)
	}
	if err := localLog(rel); err != nil {
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
		next, err := descend(at, part)
		if err != nil {
			return "", invalid("log_path %q: %v", rel, err)
		}
		at.Close()
		at = next
	}
	if err := logFile(at, parts[last]); err != nil {
		return "", invalid("log_path %q: %v", rel, err)
	}
	return filepath.Join(dir, rel), nil
}

// localLog refuses ".." wherever it stands, also where cleaning would make it harmless: nobody sends that in good
// faith.
func localLog(rel string) error {
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

// descend opens the directory name in at, making it if need be; a symbolic link is an error.
func descend(at *os.File, name string) (*os.File, error) {
	err := unix.Mkdirat(int(at.Fd()), name, 0o755)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, &fs.PathError{Op: "mkdir", Path: name, Err: err}
	}
	return openat2(at, name, unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// logFile accepts what is not there yet and a regular file.
func logFile(at *os.File, name string) error {
	var st unix.Stat_t
	err := unix.Fstatat(int(at.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errors.New("there is something that is not a regular file")
	}
	return nil
}
