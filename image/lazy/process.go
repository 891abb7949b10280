package lazy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"go.podman.io/storage/pkg/reexec"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/image/child"
	"github.com/podd-project/podd/image/layers"
)

// command is the name under which this program runs itself to reach the store. A thread that waits for a FUSE server
// which hangs sleeps uninterruptibly, so that a process with such a thread cannot end.
const command = "podd-layer-store"

// Register registers that command. The program's main must call reexec.Init next.
func Register() {
	reexec.Register(command, func() {
		if err := runJob(os.Stdin, os.Stdout); err != nil {
			child.Fail(err)
		}
		os.Exit(0)
	})
}

const (
	// timeout bounds all questions that one process asks the store.
	timeout = 15 * time.Second
	// maxAsking bounds the processes that ask the store at the same time, those that hang included; others wait.
	// Releases have a separate place.
	maxAsking = 16
	// maxMemory bounds the memory of such a process, in bytes.
	maxMemory = 64 << 20
)

// job is the work of that process: JSON on its stdin.
type job struct {
	// Root is the store's mount point.
	Root string
	// LookUp are layers to look up and to use, Check those that must be there, Release those that are no longer used.
	LookUp  []layers.Wanted `json:",omitempty"`
	Check   []layers.Lazy   `json:",omitempty"`
	Release []layers.Lazy   `json:",omitempty"`
	// Mount is a filesystem to mount.
	Mount *mount `json:",omitempty"`
}

// answers returns the number of answers.
func (j job) answers() int {
	n := len(j.LookUp) + len(j.Check)
	if j.Mount != nil {
		n++
	}
	return n
}

// answer is one line on its stdout: one for each layer that is looked up or checked, in their order, or one for
// the mount.
type answer struct {
	Found *layers.Lazy `json:",omitempty"`
	Error string       `json:",omitempty"`
	// Gone is set if the store answers that it does not serve the layer.
	Gone bool `json:",omitempty"`
	// Unavailable is set if the store does not answer.
	Unavailable bool `json:",omitempty"`
}

// errHangs: the additional layer store did not answer in time.
var errHangs = fmt.Errorf("the additional layer store did not answer within %v: %w", timeout,
	errdefs.ErrUnavailable)

// ask makes a separate process do a job with the additional layer store. It returns the answers that came until
// the process ended, or until timeout has passed, the time it waits for a place included: then the process is
// killed. A process that sleeps uninterruptibly ends when the store does.
func (c *Client) ask(ctx context.Context, j job) ([]answer, error) {
	limited, cancel := context.WithTimeoutCause(ctx, timeout, errHangs)
	defer cancel()
	places := c.asking
	if len(j.Release) > 0 {
		places = c.releasing
	}
	select {
	case places <- struct{}{}:
	case <-limited.Done():
		return nil, fmt.Errorf("%d processes ask it: %w", cap(places), context.Cause(limited))
	}
	answers, done := make(chan answer), make(chan error, 1)
	go func() {
		done <- runProcess(limited, j, answers)
		<-places
	}()
	var got []answer
	for {
		select {
		case a := <-answers:
			got = append(got, a)
		case err := <-done:
			if err != nil && limited.Err() != nil {
				err = context.Cause(limited)
			}
			return got, err
		case <-limited.Done():
			return got, context.Cause(limited)
		}
	}
}

// runProcess returns when the process has ended.
func runProcess(ctx context.Context, j job, to chan<- answer) error {
	exit, err := child.Run(ctx, child.Process{
		Name: command, Job: j, Attributes: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	}, func(line []byte) (any, error) {
		var a answer
		if err := json.Unmarshal(line, &a); err != nil {
			return nil, err
		}
		select {
		case to <- a:
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	})
	if err != nil {
		return fmt.Errorf("start the process for the additional layer store: %w", err)
	}
	if exit.Err != nil {
		return fmt.Errorf("the process for the additional layer store failed (%w): %.1000q", exit.Err, exit.Stderr)
	}
	return exit.IO
}

// runJob does the job on stdin.
func runJob(stdin io.Reader, stdout io.Writer) error {
	if err := limitProcess(); err != nil {
		return err
	}
	var j job
	if err := json.NewDecoder(stdin).Decode(&j); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	out := json.NewEncoder(stdout)
	root, err := openRoot(j.Root)
	if err != nil {
		for range j.answers() {
			if err := out.Encode(failedAnswer(err)); err != nil {
				return err
			}
		}
		return nil
	}
	defer root.Close()
	for _, l := range j.Release {
		root.release(l)
	}
	for _, l := range j.LookUp {
		if err := out.Encode(root.lookUp(l)); err != nil {
			return err
		}
	}
	for _, l := range j.Check {
		if err := out.Encode(root.check(l)); err != nil {
			return err
		}
	}
	if j.Mount != nil {
		return out.Encode(j.Mount.do(root))
	}
	return nil
}

func limitProcess() error {
	go child.WatchMemory(maxMemory)
	return child.PreferKilling()
}

// failedAnswer is for an error of the store.
func failedAnswer(err error) answer {
	unavailable := errors.Is(err, errdefs.ErrUnavailable) || isTransient(err)
	return answer{Error: err.Error(), Gone: !unavailable, Unavailable: unavailable}
}

// isTransient reports whether an error says nothing about the layer: the store's server exits, or the kernel refuses
// this process resources.
func isTransient(err error) bool {
	return slices.ContainsFunc([]error{
		unix.ENOTCONN, unix.ECONNABORTED, unix.ESTALE, unix.ETIMEDOUT, unix.EINTR, unix.EAGAIN, unix.ENOMEM, unix.EMFILE,
		unix.ENFILE,
	}, func(e error) bool { return errors.Is(err, e) })
}
