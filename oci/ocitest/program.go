package ocitest

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci"
)

// program is what a command does, for the Fake.
type program struct {
	output string
	lasts  time.Duration
	code   int32
	// copies its input to its output.
	copies bool
	// trap is a signal that ends it with the status trapped.
	trap    syscall.Signal
	trapped int32
}

// Trap is a command that says "ready" and runs until SIGTERM, and then exits with the code.
func Trap(code int) []string {
	return []string{"sh", "-c", fmt.Sprintf(`trap "exit %d" TERM; echo ready; while :; do sleep 0.05; done`, code)}
}

var (
	exitScript = regexp.MustCompile(`^exit (\d+)$`)
	trapScript = regexp.MustCompile(`^trap "exit (\d+)" TERM; `)
)

const forever = 1 << 62

// parse understands true, false, echo, cat, sleep, `sh -c "exit N"`, Trap, and /pause; others are not found.
func parse(args []string) (program, error) {
	if len(args) == 0 {
		return program{}, fmt.Errorf("no command: %w", errdefs.ErrInvalidArgument)
	}
	rest := strings.Join(args[1:], " ")
	switch args[0] {
	case "true":
		return program{}, nil
	case "false":
		return program{code: 1}, nil
	case "echo":
		return program{output: rest + "\n"}, nil
	case "cat":
		return program{copies: true}, nil
	case "/pause":
		return program{lasts: forever, trap: syscall.SIGTERM}, nil
	case "sleep":
		seconds, err := strconv.ParseFloat(rest, 64)
		if err != nil {
			return program{}, fmt.Errorf("sleep %s: %w", rest, errdefs.ErrInvalidArgument)
		}
		return program{lasts: time.Duration(seconds * float64(time.Second))}, nil
	case "sh":
		script := strings.TrimPrefix(rest, "-c ")
		if m := exitScript.FindStringSubmatch(script); m != nil {
			return program{code: number(m[1])}, nil
		}
		if m := trapScript.FindStringSubmatch(script); m != nil {
			return program{output: "ready\n", lasts: forever, trap: syscall.SIGTERM, trapped: number(m[1])}, nil
		}
	}
	text := fmt.Sprintf("exec: %q: executable file not found in $PATH", args[0])
	return program{}, &oci.CommandError{Code: 127, Text: text}
}

func number(s string) int32 {
	n, _ := strconv.Atoi(s) // digits, by the pattern
	return int32(n)
}

// checkFakeID refuses what oci refuses.
func checkFakeID(id string) error {
	bad := func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("_.-", c))
	}
	if id == "" || len(id) > 200 || id[0] == '.' || id[0] == '-' || strings.ContainsFunc(id, bad) {
		return fmt.Errorf("container id %.80q: %w", id, errdefs.ErrInvalidArgument)
	}
	return nil
}
