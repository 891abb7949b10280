package driver

import (
	"errors"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci"
)

// TestCommandCode holds what runtimes really print, and what must not be taken for the user's mistake.
func TestCommandCode(t *testing.T) {
	const execFailed = "runc create failed: unable to start container process: error during container init: exec: "
	for text, want := range map[string]int32{
		execFailed + `"nosuch": executable file not found in $PATH`:                                          127,
		execFailed + `"/nosuch": stat /nosuch: no such file or directory`:                                    127,
		execFailed + `"/bin/plain": permission denied`:                                                       126,
		execFailed + `"/tmp": is a directory`:                                                                126,
		`exec failed: unable to start container process: exec: "nosuch": executable file not found in $PATH`: 127,
		"executable file `nosuch` not found in $PATH: No such file or directory":                             127,
		"open executable: Permission denied":                                                                 126,
		"open executable: Operation not permitted":                                                           126,
		"the path `/bin/plain` exists but it is not executable: Operation not permitted":                     126,
		"the path `/tmp` is not a regular file: Operation not permitted":                                     126,
		"executable 'nosuch' for container 'c' not found in $PATH":                                           127,
		"exec container process `/bin/x`: Exec format error":                                                 126,
		`runc create failed: error mounting "/no/such" to rootfs at "/x": mount ` +
			`src=/no/such, dst=/x: no such file or directory`: 0,
		`runc create failed: unable to apply cgroup configuration: mkdir /sys/fs/cgroup/x: permission denied`: 0,
		"the path `/x` is not a directory: Not a directory":                                                   0,
		"error stat'ing file `/no/such`: No such file or directory":                                           0,
		"": 0,
	} {
		if got := commandCode(text); got != want {
			t.Errorf("commandCode(%q) = %d, want %d", text, got, want)
		}
	}
}

func TestFailureKinds(t *testing.T) {
	for text, is := range map[string]func(error) bool{
		"container does not exist": errdefs.IsNotFound,
		"error opening file `/run/crun/c/status`: No such file or directory": errdefs.IsNotFound,
		`destroying container: stopping container: destroying container "c": ` +
			`destroying container "c": container "c" not found`: errdefs.IsNotFound,
		`container "c" not found in time`:                 func(err error) bool { return !errdefs.IsNotFound(err) },
		"container with given ID already exists":          errdefs.IsAlreadyExists,
		"cannot exec in a stopped container":              errdefs.IsFailedPrecondition,
		"the container `c` is not running":                errdefs.IsFailedPrecondition,
		"error mounting /x: no such file or directory":    func(err error) bool { return !errdefs.IsNotFound(err) },
		"exec: \"x\": executable file not found in $PATH": func(err error) bool { return errors.Is(err, oci.ErrCommand) },
		"": func(err error) bool { return strings.Contains(err.Error(), "without a message") },
	} {
		if err := Failure("runc create", text); !is(err) || !strings.HasPrefix(err.Error(), "runc create: ") {
			t.Errorf("Failure of %q = %v, want an error of another kind", text, err)
		}
	}
}

func TestComplaint(t *testing.T) {
	for name, tt := range map[string]struct{ stderr, want string }{
		"logrus":    {`time="2026-01-02T03:04:05Z" level=error msg="exec: \"x\": not found"` + "\n", `exec: "x": not found`},
		"warnings":  {"time=\"t\" level=warning msg=\"careful\"\ntime=\"t\" level=error msg=\"no\"\n", "no"},
		"unquoted":  {"time=t level=fatal msg=boom\n", "boom"},
		"two":       {"level=error msg=\"a\"\nlevel=error msg=\"b\"", "a; b"},
		"plain":     {"crun says no\n", "crun says no"},
		"lines":     {"one\r\ntwo\n\n", "one; two"},
		"bad UTF-8": {"a\xffb", "a?b"},
		"empty":     {"", ""},
	} {
		if got := Complaint([]byte(tt.stderr)); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func FuzzComplaint(f *testing.F) {
	f.Add([]byte(`level=error msg="\"`))
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = Failure("x", Complaint(b)).Error()
	})
}
