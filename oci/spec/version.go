package spec

import (
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// oldestVersion is written for runtimes that cannot say what they support: every runtime in use reads it.
const oldestVersion = "1.0.2"

// version returns the ociVersion to write. A newer one than the runtime knows makes some refuse the whole file
// (crun 1.8 of Debian 12: "unknown version specified").
func version(max string) string {
	if max == "" {
		return oldestVersion
	}
	return max
}

// fit removes what is newer than the version written and has the same meaning when it is absent.
//
// Two newer things stay on purpose. linux.resources.unified came with 1.1.0, yet crun and runc took it while they
// still called themselves 1.0: dropping a limit would be worse than writing it for a runtime that skips it. Mount
// id mappings are only written when Handler.UserNamespaces says that they work.
func fit(s *specs.Spec) {
	if atLeast(s.Version, 1, 1) {
		return
	}
	sec := s.Linux.Seccomp
	if sec == nil || sec.DefaultErrnoRet == nil || *sec.DefaultErrnoRet != uint(unix.EPERM) {
		return
	}
	sec.DefaultErrnoRet = nil // EPERM is what its absence means
}

// atLeast compares the first two numbers of a version such as "1.2.0-rc.1".
func atLeast(version string, major, minor int) bool {
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
