package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"go.podman.io/storage/pkg/reexec"

	"github.com/podd-project/podd/image/child"
)

// helperCommand is the name under which this program runs itself to find credentials.
const helperCommand = "podd-credentials"

const (
	// helperTimeout is how long all credential helpers of a pull may take.
	helperTimeout = 30 * time.Second
	// maxHelperMemory bounds the process that reads the output of helpers, in bytes.
	maxHelperMemory = 64 << 20
)

// helperJob is what that process does: JSON on its stdin. The end of its stdin means that it must stop.
type helperJob struct {
	Config Config
	Names  []string
}

// helperAnswer is JSON on its stdout.
type helperAnswer struct {
	Found credentialSet
	Error string
}

// askHelpers finds credentials in a separate process, so that the helpers' time and output are bounded: they run in its
// process group, with podd's environment, and the group ends when the process has answered, when ctx ends, or when podd
// does.
func askHelpers(ctx context.Context, job helperJob, timeout time.Duration) (credentialSet, error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var answer *helperAnswer
	exit, err := child.Run(limited, child.Process{ // it kills itself, with its group
		Name: helperCommand, Job: job,
	}, func(line []byte) (any, error) { return nil, json.Unmarshal(line, &answer) })
	switch {
	case err != nil:
		return nil, fmt.Errorf("start the process of credential helpers: %w", err)
	case answer != nil && answer.Error != "":
		return nil, fmt.Errorf("%s: %w", answer.Error, errdefs.ErrFailedPrecondition)
	case answer != nil:
		return answer.Found, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case limited.Err() != nil:
		return nil, fmt.Errorf("the node's credential helpers did not answer within %v: %w", timeout, errdefs.ErrUnavailable)
	}
	return nil, errors.Join(fmt.Errorf("%w: %q: %w", exit.Explain("the process of credential helpers"), exit.Stderr,
		errdefs.ErrFailedPrecondition), exit.IO)
}

// Register registers the command of that process; the program's main must call reexec.Init.
func Register() {
	reexec.Register(helperCommand, func() {
		if err := runHelpers(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		killGroup()
	})
}

// runHelpers does the job on stdin.
func runHelpers(stdin io.Reader, stdout io.Writer) error {
	if err := child.PreferKilling(); err != nil {
		return err
	}
	go child.WatchMemory(maxHelperMemory)
	input := json.NewDecoder(stdin)
	var job helperJob
	if err := input.Decode(&job); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	go func() { // podd sends nothing else: it closes the pipe, or dies
		_, _ = io.Copy(io.Discard, stdin)
		killGroup()
	}()
	found, err := job.lookUp()
	answer := helperAnswer{Found: found}
	if err != nil {
		answer.Error = Scrub(err.Error(), nil)
	}
	return json.NewEncoder(stdout).Encode(answer)
}

// KillGroup ends this process and the helpers that it has started.
func killGroup() {
	_ = syscall.Kill(0, syscall.SIGKILL) // fails for no process that is its own
	os.Exit(1)
}
