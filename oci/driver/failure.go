package driver

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci"
)

// Failure returns the error of a runtime that failed at act with that text: an oci.ErrCommand if it is about the
// container's command, an errdefs kind for the texts that callers act on.
func Failure(act, text string) error {
	if text == "" {
		text = "the runtime ended without a message"
	}
	if code := commandCode(text); code != 0 {
		return fmt.Errorf("%s: %w", act, &oci.CommandError{Code: code, Text: text})
	}
	if kind := errorKind(text); kind != nil {
		return fmt.Errorf("%s: %s: %w", act, text, kind)
	}
	return fmt.Errorf("%s: %s", act, text)
}

// commandCode returns the exit code that a shell would give for an error of runc, crun, youki or runsc about the
// container's command, otherwise 0. Only the text distinguishes it: the exit status is the same for every failure.
func commandCode(text string) int32 {
	t := strings.ToLower(text)
	runc := strings.Contains(t, `exec: "`)
	crun := strings.Contains(t, "open executable")
	notExecutable := strings.Contains(t, "the path `") && // crun since 1.21
		(strings.Contains(t, "` exists but it is not executable") || strings.Contains(t, "` is not a regular file"))
	runsc := strings.Contains(t, "error finding executable") || strings.Contains(t, ": failed to load ")
	switch {
	case strings.Contains(t, "executable file not found"), // runc
		strings.Contains(t, "executable file `"),                                // crun
		strings.Contains(t, "executable '") && strings.Contains(t, "not found"), // youki
		(runc || crun || runsc) && strings.Contains(t, "no such file or directory"):
		return 127
	case notExecutable,
		(runc || runsc) && (strings.Contains(t, "permission denied") || strings.Contains(t, "is a directory")),
		crun && (strings.Contains(t, "permission denied") || strings.Contains(t, "operation not permitted")),
		strings.Contains(t, "exec format error"):
		return 126
	}
	return 0
}

// errorKind returns the errdefs kind of the texts that callers act on.
func errorKind(text string) error {
	t := strings.ToLower(text)
	switch {
	case reportsAbsent(t):
		return errdefs.ErrNotFound
	case strings.Contains(t, "already exists"):
		return errdefs.ErrAlreadyExists
	case strings.Contains(t, "not running"), strings.Contains(t, "stopped"), strings.Contains(t, "paused"):
		return errdefs.ErrFailedPrecondition
	}
	return nil
}

// UpdateFailure adds the kind to an error of an update of limits: errdefs.ErrFailedPrecondition if the container uses
// more than a new limit, ErrInvalidArgument if the kernel refuses a value, such as a CPU that does not exist.
func UpdateFailure(err error) error {
	t := strings.ToLower(err.Error())
	switch {
	case errdefs.IsNotFound(err), errdefs.IsFailedPrecondition(err), errdefs.IsInvalidArgument(err):
	case strings.Contains(t, "resource busy"), strings.Contains(t, "current usage"):
		return fmt.Errorf("%w: %w", errdefs.ErrFailedPrecondition, err)
	case strings.Contains(t, "cpuset") && strings.Contains(t, "permission denied"),
		strings.Contains(t, "invalid argument"), strings.Contains(t, "result out of range"):
		return fmt.Errorf("%w: %w", errdefs.ErrInvalidArgument, err)
	}
	return err
}

// reportsAbsent reports whether a text, in lower case, says that there is no such container.
func reportsAbsent(t string) bool {
	return strings.Contains(t, "container does not exist") || // runc
		strings.Contains(t, "/status`: no such file or directory") || // crun
		strings.Contains(t, "does not exist") && strings.Contains(t, "container") || // runsc, youki
		unknownInSandbox.MatchString(t)
}

// unknownInSandbox is the lower-case text of a runsc whose sandbox does not know the container.
var unknownInSandbox = regexp.MustCompile(`container "[^"]*" not found$`)

// message matches messages in logrus' text format, which runc writes to stderr.
var message = regexp.MustCompile(`level=(?:error|fatal) msg=("(?:[^"\\]|\\.)*"|\S+)`)

// Complaint reduces a runtime's stderr to its error messages. Text in another format is returned whole.
func Complaint(stderr []byte) string {
	var parts []string
	for _, m := range message.FindAllSubmatch(stderr, -1) {
		text := string(m[1])
		if s, err := strconv.Unquote(text); err == nil {
			text = s
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		parts = strings.FieldsFunc(string(stderr), func(c rune) bool { return c == '\n' || c == '\r' })
	}
	return strings.ToValidUTF8(strings.TrimSpace(strings.Join(parts, "; ")), "?")
}
