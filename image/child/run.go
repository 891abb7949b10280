// Package child runs this program again as a child process with one job: the job goes in as JSON, messages come out as
// lines of JSON, and the process ends with its context or with podd. It also has the limits that such a process sets
// for itself.
//
// Three processes use it: image/worker's, which does a pull, image/registry's, which runs credential helpers, and
// image/lazy's, which touches an additional layer store. Each registers a command (reexec.Register), which the main
// function runs in place of the daemon (image.Init), and calls Run in the daemon.
//
// It knows nothing of images, stores or registries. Run is called in the daemon, the rest in the process.
package child

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
	"go.podman.io/storage/pkg/reexec"

	"github.com/podd-project/podd/oci/subprocess"
)

const (
	// MaxMessage bounds one message in bytes.
	MaxMessage = 64 << 10
	// maxStderr bounds the standard error that is kept, in bytes.
	maxStderr = 8 << 10
)

// Process is a process to run.
type Process struct {
	// Name is the name under which the command was registered (reexec.Register).
	Name string
	// Env is its environment, nil for podd's.
	Env []string
	// Files are its descriptors from 3 on.
	Files []*os.File
	// Attributes may be nil. The process leads a process group, which is killed as a whole.
	Attributes *syscall.SysProcAttr
	// Job is sent first.
	Job any
	// Grace is how long it may clean up after its context has ended and its input was closed, before it is killed. With
	// zero it is killed at once.
	Grace time.Duration
	// Idle is set if it gets the scheduling policy SCHED_IDLE: it is raised when it starves. Log gets the errors of that.
	Idle bool
	Log  logrus.FieldLogger
}

// Exit is how a process ended.
type Exit struct {
	// Err is that of subprocess.Process.Wait, nil for status 0.
	Err error
	// Stderr is the beginning of its standard error.
	Stderr string
	// IO is the error of sending the job, or of reading or taking a message; the process is killed in the latter cases.
	IO error
}

// Run starts a process and returns when it has ended. It calls take for each message; a reply that is not nil is sent
// to the process. The kernel kills the process with podd if Attributes have Pdeathsig. An error means that it did not
// start.
func Run(ctx context.Context, p Process, take func(line []byte) (reply any, err error)) (Exit, error) {
	// Pdeathsig kills the process when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := reexec.Command(p.Name)
	cmd.Env, cmd.Dir, cmd.ExtraFiles, cmd.SysProcAttr = p.Env, "/", p.Files, p.Attributes
	stderr := subprocess.NewHead(maxStderr)
	cmd.Stderr = stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return Exit{}, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return Exit{}, errors.Join(err, stdin.Close())
	}
	process, err := subprocess.Start(cmd)
	if err != nil {
		return Exit{}, err
	}
	endIdle := func() {}
	if p.Idle {
		endIdle = keepGoing(process.Pid(), p.Log)
	}
	stop := context.AfterFunc(ctx, func() {
		_ = stdin.Close() // fails if the process has ended
		time.AfterFunc(p.Grace, process.Kill)
	})
	defer stop()
	input := json.NewEncoder(stdin)
	sendErr := input.Encode(p.Job)
	readErr := readMessages(stdout, input, take)
	if readErr != nil { // it would block on a full pipe
		process.Kill()
	}
	endIdle()
	err = process.Wait(context.WithoutCancel(ctx)) // closes the pipes; AfterFunc kills the process
	return Exit{Err: err, Stderr: stderr.String(), IO: errors.Join(sendErr, readErr)}, nil
}

func readMessages(from io.Reader, input *json.Encoder, take func([]byte) (any, error)) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(make([]byte, 0, 4<<10), MaxMessage)
	for lines.Scan() {
		reply, err := take(lines.Bytes())
		if err == nil && reply != nil {
			err = input.Encode(reply)
		}
		if err != nil {
			return err
		}
	}
	return lines.Err()
}

// Explain returns the error of a process that exited without a result. What names the process.
func (e Exit) Explain(what string) error {
	err := e.Err
	if err == nil {
		err = errors.New("exit status 0")
	}
	return fmt.Errorf("%s ended without an answer (%w)", what, err)
}
