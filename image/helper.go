package image

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
)

// helperCommand is the name under which this program runs itself to find credentials.
const helperCommand = "podd-credentials"

const (
	// helperPatience is how long all credential helpers of a pull may take.
	helperPatience = 30 * time.Second
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

// askHelpers finds credentials in a process of its own, so that the helpers' time and output are bounded: they run in
// its process group, with podd's environment, and the group ends when the process has answered, when ctx ends, or when
// podd does.
func askHelpers(ctx context.Context, job helperJob, patience time.Duration) (credentialSet, error) {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := reexec.CommandContext(limited, helperCommand)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // for output of a helper that has left the group
	stdout, stderr := &tail{most: maxChildMessage}, &tail{most: maxChildOutput}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the process of credential helpers: %w", err)
	}
	sendErr := json.NewEncoder(stdin).Encode(job)
	waitErr := cmd.Wait() // it kills itself, with its group
	var answer helperAnswer
	switch err := json.Unmarshal(stdout.text, &answer); {
	case err == nil && answer.Error != "":
		return nil, fmt.Errorf("%s: %w", answer.Error, errdefs.ErrFailedPrecondition)
	case err == nil:
		return answer.Found, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case limited.Err() != nil:
		return nil, fmt.Errorf("the node's credential helpers did not answer within %v: %w", patience,
			errdefs.ErrUnavailable)
	}
	return nil, errors.Join(fmt.Errorf("the process of credential helpers ended without an answer (%w): %q: %w",
		orExited(waitErr), stderr.String(), errdefs.ErrFailedPrecondition), sendErr)
}

// runHelpers does the job on stdin.
func runHelpers(stdin io.Reader, stdout io.Writer) error {
	if err := preferKilling(); err != nil {
		return err
	}
	go watchMemory(maxHelperMemory)
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
		answer.Error = scrub(err.Error(), nil)
	}
	return json.NewEncoder(stdout).Encode(answer)
}

// killGroup ends this process and the helpers that it has started.
func killGroup() {
	_ = syscall.Kill(0, syscall.SIGKILL) // fails for no process that is its own
	os.Exit(1)
}
