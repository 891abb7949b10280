package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/image/child"
	"github.com/podd-project/podd/image/layers"
)

// storeCommand is the name under which this program runs itself to reach the additional layer store. A thread that
// waits for a FUSE server which hangs sleeps uninterruptibly, so that a process with such a thread cannot end: neither
// podd nor a pull's process touch the files of that store.
const storeCommand = "podd-layer-store"

const (
	// storeTimeout is how long the store may take for all that one process asks of it.
	storeTimeout = 15 * time.Second
	// maxAsking bounds the processes that ask the store at the same time, those that hang included; others wait.
	// Releases have a place of their own.
	maxAsking = 16
	// maxStoreMemory bounds the memory of such a process, in bytes.
	maxStoreMemory = 64 << 20
)

// storeJob is what that process does: JSON on its stdin.
type storeJob struct {
	// Root is the store's mount point.
	Root string
	// LookUp are layers to look up and to use, Check those that must be there, Release those that are used no more.
	LookUp  []layers.Wanted `json:",omitempty"`
	Check   []layers.Lazy   `json:",omitempty"`
	Release []layers.Lazy   `json:",omitempty"`
	// Mount is a filesystem to mount.
	Mount *storeMount `json:",omitempty"`
}

// answers returns the number of answers.
func (job storeJob) answers() int {
	n := len(job.LookUp) + len(job.Check)
	if job.Mount != nil {
		n++
	}
	return n
}

// storeAnswer is one line on its stdout: one for each layer that is looked up or checked, in their order, or one for
// the mount.
type storeAnswer struct {
	Found *layers.Lazy `json:",omitempty"`
	Error string       `json:",omitempty"`
	// Gone is set if the store answers that it does not serve the layer.
	Gone bool `json:",omitempty"`
	// Unavailable is set if the store does not answer.
	Unavailable bool `json:",omitempty"`
}

// errStoreHangs: the additional layer store did not answer in time.
var errStoreHangs = fmt.Errorf("the additional layer store did not answer within %v: %w", storeTimeout,
	errdefs.ErrUnavailable)

// askStore makes a separate process do a job with the additional layer store. It returns the answers that came until
// the process ended, or until storeTimeout has passed, the time it waits for a place included: then the process is
// killed. A process that sleeps uninterruptibly ends when the store does.
func (s *Store) askStore(ctx context.Context, job storeJob) ([]storeAnswer, error) {
	limited, cancel := context.WithTimeoutCause(ctx, storeTimeout, errStoreHangs)
	defer cancel()
	places := s.asking
	if len(job.Release) > 0 {
		places = s.releasing
	}
	select {
	case places <- struct{}{}:
	case <-limited.Done():
		return nil, fmt.Errorf("%d processes ask it: %w", cap(places), context.Cause(limited))
	}
	answers, done := make(chan storeAnswer), make(chan error, 1)
	go func() {
		done <- runStoreProcess(limited, job, answers)
		<-places
	}()
	var got []storeAnswer
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

// runStoreProcess returns when the process has ended.
func runStoreProcess(ctx context.Context, job storeJob, to chan<- storeAnswer) error {
	exit, err := child.Run(ctx, child.Process{
		Name: storeCommand, Job: job, Attributes: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	}, func(line []byte) (any, error) {
		var a storeAnswer
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

// runStoreJob does the job on stdin.
func runStoreJob(stdin io.Reader, stdout io.Writer) error {
	if err := limitStoreProcess(); err != nil {
		return err
	}
	var job storeJob
	if err := json.NewDecoder(stdin).Decode(&job); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	out := json.NewEncoder(stdout)
	root, err := openStoreRoot(job.Root)
	if err != nil {
		for range job.answers() {
			if err := out.Encode(failedAnswer(err)); err != nil {
				return err
			}
		}
		return nil
	}
	defer root.Close()
	for _, l := range job.Release {
		root.release(l)
	}
	for _, l := range job.LookUp {
		if err := out.Encode(root.lookUp(l)); err != nil {
			return err
		}
	}
	for _, l := range job.Check {
		if err := out.Encode(root.check(l)); err != nil {
			return err
		}
	}
	if job.Mount != nil {
		return out.Encode(job.Mount.do(root))
	}
	return nil
}

func limitStoreProcess() error {
	go child.WatchMemory(maxStoreMemory)
	return child.PreferKilling()
}

// failedAnswer is for an error of the store.
func failedAnswer(err error) storeAnswer {
	unavailable := errors.Is(err, errdefs.ErrUnavailable) || isTransient(err)
	return storeAnswer{Error: err.Error(), Gone: !unavailable, Unavailable: unavailable}
}

// isTransient reports whether an error is not the store's own: its server has ended or ends, or this process gets no
// more of the kernel.
func isTransient(err error) bool {
	return slices.ContainsFunc([]error{
		unix.ENOTCONN, unix.ECONNABORTED, unix.ESTALE, unix.ETIMEDOUT, unix.EINTR, unix.EAGAIN, unix.ENOMEM, unix.EMFILE,
		unix.ENFILE,
	}, func(e error) bool { return errors.Is(err, e) })
}
