package host

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
)

// accountLimit is the size in bytes of the largest passwd or group file that is read: about 50,000 lines, which takes a
// few milliseconds; larger sets of users are kept in a directory service. The files come from the image; without a
// limit they can exhaust the daemon's memory (CVE-2025-4437).
const accountLimit = 4 << 20

// maxLine is the longest line in bytes: a group with very many members.
const maxLine = 1 << 20

// account is a line of passwd(5); group is one of group(5).
type account struct {
	name     string
	uid, gid uint32
	home     string
}

type group struct {
	name    string
	gid     uint32
	members []string
}

// findAccount returns the first account of the file path below root that f accepts, as getpwnam(3) does; nil if there
// is none, or no file.
func findAccount(root, path string, f func(account) bool) (*account, error) {
	var found *account
	err := eachLine(root, path, func(line string) bool {
		if a, ok := parseAccount(line); ok && f(a) {
			found = &a
		}
		return found == nil
	})
	return found, err
}

// eachGroup calls f for every group until it returns false.
func eachGroup(rootfs string, f func(group) bool) error {
	return eachLine(rootfs, "/etc/group", func(line string) bool {
		g, ok := parseGroup(line)
		return !ok || f(g)
	})
}

// parseAccount skips a line with invalid ids. Common parsers read them as 0: with a line "app:x:4294967296:0" app would
// be root (CVE-2024-40635).
func parseAccount(line string) (account, bool) {
	f := strings.Split(line, ":")
	if len(f) < 4 || f[0] == "" {
		return account{}, false
	}
	uid, err1 := parseID(f[2])
	gid, err2 := parseID(f[3])
	if err1 != nil || err2 != nil {
		return account{}, false
	}
	a := account{name: f[0], uid: uid, gid: gid}
	if len(f) > 5 {
		a.home = f[5]
	}
	return a, true
}

func parseGroup(line string) (group, bool) {
	f := strings.Split(line, ":")
	if len(f) < 3 || f[0] == "" {
		return group{}, false
	}
	gid, err := parseID(f[2])
	if err != nil {
		return group{}, false
	}
	g := group{name: f[0], gid: gid}
	if len(f) > 3 && f[3] != "" {
		g.members = strings.Split(f[3], ",")
	}
	return g, true
}

var errNotNumber = errors.New("not a number")

// parseID parses a user or group id; errNotNumber means that s may be a name. A number that is not an id is another
// error: looked up as a name, an image could define a user "4294967296" with id 0 (CVE-2026-46680).
func parseID(s string) (uint32, error) {
	if !numeric(s) {
		return 0, errNotNumber
	}
	id, err := strconv.ParseUint(s, 10, 32)
	if err != nil || id == math.MaxUint32 { // 2^32-1 means "no change" to setuid(2)
		return 0, invalid("%q is not a user or group id", s)
	}
	return uint32(id), nil
}

// numeric reports whether s consists of digits, with or without a sign.
func numeric(s string) bool {
	digits := strings.TrimLeft(s, "+-")
	return digits != "" && strings.Trim(digits, "0123456789") == ""
}

// eachLine reads a file below rootfs line by line until f returns false. An absent file has no lines.
func eachLine(rootfs, path string, f func(string) bool) error {
	file, err := openAccounts(rootfs, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: the image's %s cannot be read: %w", errdefs.ErrInvalidArgument, path, err)
	}
	defer file.Close()
	// Limited again: the file may grow while it is read.
	lines := bufio.NewScanner(io.LimitReader(file, accountLimit))
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		if !f(line) {
			return nil
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%w: the image's %s cannot be read: %w", errdefs.ErrInvalidArgument, path, err)
	}
	return nil
}

func openAccounts(rootfs, path string) (*os.File, error) {
	found, err := openInRoot(rootfs, path)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	return openRegular(found, accountLimit)
}
