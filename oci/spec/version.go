package spec

import (
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// oldestVersion is for runtimes that do not report their supported versions: every runtime in use reads it.
const oldestVersion = "1.0.2"

// version returns the ociVersion to write. Some runtimes refuse a file of a newer version than they know (crun 1.8 of
// Debian 12: "unknown version specified").
func version(max string) string {
	if max == "" {
		return oldestVersion
	}
	return max
}

// removeNewer removes fields that are newer than the written version and whose absence means the same.
//
// Two newer fields stay on purpose. linux.resources.unified came with 1.1.0, but crun and runc read it while they still
// reported 1.0; to drop a limit would be worse than to write one that a runtime ignores. Mount id mappings are only
// written if Handler.UserNamespaces is set.
func removeNewer(s *specs.Spec) {
	if AtLeast(s.Version, 1, 1) {
		return
	}
	sec := s.Linux.Seccomp
	if sec == nil || sec.DefaultErrnoRet == nil || *sec.DefaultErrnoRet != uint(unix.EPERM) {
		return
	}
	sec.DefaultErrnoRet = nil // absent means EPERM
}

// AtLeast compares the first two numbers of a version such as "1.2.0-rc.1".
func AtLeast(version string, major, minor int) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	first, err1 := strconv.Atoi(parts[0])
	second, err2 := strconv.Atoi(parts[1])
	if err1 != nil || err2 != nil {
		return false
	}
	return first > major || first == major && second >= minor
}
