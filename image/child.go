package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"go.podman.io/storage/pkg/reexec"

	"github.com/podd-project/podd/image/confine"
)

const (
	// childPatience is how long a pull's process has to clean up after it was told to stop, before it is killed.
	childPatience = 10 * time.Second
	// maxChildMessage bounds one message of the process, maxChildOutput what is kept of its stderr; both in bytes.
	maxChildMessage = 64 << 10
	maxChildOutput  = 8 << 10
)

// pulled is what a pull's process has stored.
type pulled struct {
	// ID is the image's id, Digest that of the manifest (or list) that was requested.
	ID     string
	Digest digest.Digest
	// Loaded are the images of a file, in place of the above; those of a file that was loaded in part, too.
	Loaded []loadedImage `json:"-"`
}

// loadedImage is an image of a file that is in storage.
type loadedImage struct {
	ID string
	// Names are full names, with a tag or a digest.
	Names []string
}

// credentialsFD is the file of credentials in a pull's process.
const credentialsFD = 3

// pullInChild runs the transfer in a confined process: what the registry sends is parsed, decompressed and unpacked
// there. It ends when ctx or this process does.
func (s *Store) pullInChild(ctx context.Context, job pullJob, c *pullConfig, p *progress) (pulled, error) {
	job.Config, job.Dir = c.Config, c.dir
	job.Config.AuthFile = fmt.Sprintf("/proc/self/fd/%d", credentialsFD)
	type answer struct {
		pulled
		err error
	}
	done := make(chan answer, 1)
	go func() {
		// The kernel kills the process when the thread that started it ends (PR_SET_PDEATHSIG).
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		result, err := s.runChild(ctx, job, c.credentials, p)
		done <- answer{result, err}
	}()
	a := <-done
	return a.pulled, a.err
}

// runChild starts the process, passes the job, and reads its reports.
func (s *Store) runChild(ctx context.Context, job pullJob, credentials *os.File, p *progress) (pulled, error) {
	cmd := reexec.Command(confineCommand)
	cmd.Env = childEnv(job)
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{credentials} // credentialsFD
	cmd.SysProcAttr = confine.Attributes()
	output := &tail{most: maxChildOutput}
	cmd.Stderr = output
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return pulled{}, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return pulled{}, errors.Join(err, stdin.Close())
	}
	if err := cmd.Start(); err != nil {
		return pulled{}, fmt.Errorf("start the process of the pull: %w", err)
	}
	endIdle := func() {}
	if job.Idle {
		endIdle = s.keepGoing(cmd.Process.Pid)
	}
	stop := context.AfterFunc(ctx, func() { stopChild(cmd.Process, stdin) })
	defer stop()
	sendErr := json.NewEncoder(stdin).Encode(job)
	lookUp := func(r storeRequest) error {
		p.setAsking(true)
		defer p.setAsking(false)
		return s.answerLookUp(ctx, job, r, stdin)
	}
	last, readErr := readReports(stdout, p, lookUp)
	if readErr != nil { // it would wait for somebody to read
		_ = cmd.Process.Kill()
	}
	endIdle()
	waitErr := cmd.Wait() // closes the pipes
	part := pulled{Loaded: last.Result.Loaded}
	switch {
	case last.Kind == reportDone && waitErr == nil:
		return last.Result, nil
	case ctx.Err() != nil:
		return part, context.Cause(ctx)
	case last.Kind == reportFailed:
		return part, last.failure()
	}
	s.log.WithField("image", p.snapshot().Ref).WithField("output", output.String()).
		Warn("the process of a pull has died")
	return part, errors.Join(childDeath(*s.cfg(), waitErr, output.String()), sendErr, readErr)
}

// stopChild tells the process to stop, by the end of its input, and kills it if it does not.
func stopChild(child *os.Process, stdin io.Closer) {
	_ = stdin.Close()                                          // fails if the process has ended
	time.AfterFunc(childPatience, func() { _ = child.Kill() }) // likewise
}

// memoryTexts are what a process says that gets no more memory: watchMemory, the Go runtime, the C library's threads,
// and the garbage collector of Go 1.26, which does not check whether it got memory for its queues. Elsewhere in a Go
// program an invalid address is a panic.
var memoryTexts = []string{
	memoryText, "out of memory", "cannot allocate memory", "errno=11", "errno=12", "SIGSEGV: segmentation violation",
}

// childDeath explains why a pull's process died without an answer.
func childDeath(cfg Config, waited error, output string) error {
	const crashed = 2 // status of a Go program after a panic or fatal error
	var exit *exec.ExitError
	switch {
	case !errors.As(waited, &exit):
		return fmt.Errorf("the process of the pull ended without an answer (%w)", orExited(waited))
	case exit.ExitCode() < 0:
		return fmt.Errorf("the process of the pull was killed (%w): %w", waited, errdefs.ErrResourceExhausted)
	}
	cause, _, _ := strings.Cut(output, "\n\n") // the rest are stacks
	hasText := func(text string) bool { return strings.Contains(cause, text) }
	switch {
	case !strings.HasPrefix(cause, "panic: ") && slices.ContainsFunc(memoryTexts, hasText):
		return fmt.Errorf("unpacking the image takes more memory than pull_memory allows (%d bytes): %w",
			cfg.PullMemory, errdefs.ErrResourceExhausted)
	case exit.ExitCode() == crashed:
		line, _, _ := strings.Cut(cause, "\n")
		return fmt.Errorf("the process of the pull crashed (%.200q): podd's log has more; please report it", line)
	}
	return fmt.Errorf("the process of the pull ended without an answer (%w)", waited)
}

func orExited(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// keptEnv are the variables of the daemon that a pull uses: proxies, certificates, the time zone of messages. Without
// PATH the library decompresses itself instead of running programs.
var keptEnv = []string{
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "TZ", "GODEBUG", "GORACE",
}

func childEnv(job pullJob) []string {
	env := []string{
		"TMPDIR=" + job.Dir, pullDirEnv + "=" + job.Dir,
		// Each layer needs buffers of several MiB, which would be most of a small heap: collecting garbage as often as
		// by default costs a fifth of a pull's processor time.
		"GOGC=200",
		// The garbage collector works harder above this; the hard limit is the process's.
		"GOMEMLIMIT=" + strconv.FormatInt(job.Config.PullMemory/4*3, 10),
		maxBytesEnv + "=" + strconv.FormatInt(job.Config.MaxImageBytes, 10),
		maxMemoryEnv + "=" + strconv.FormatInt(job.Config.PullMemory, 10),
		rootEnv + "=" + job.Config.Root, runRootEnv + "=" + job.Config.RunRoot,
		readableEnv + "=" + strings.Join(append(readablePaths(job.Config), job.Load), "\n"),
		offlineEnv + "=" + strconv.FormatBool(job.offline()), idleEnv + "=" + strconv.FormatBool(job.Idle),
		// Configuration in the home directory of root is for a person, not for pods.
		"XDG_CONFIG_HOME=" + filepath.Join(job.Dir, "nowhere"),
	}
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); slices.Contains(keptEnv, name) {
			env = append(env, v)
		}
	}
	return env
}

// tail is a writer that keeps the first bytes.
type tail struct {
	most int
	text []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.text = append(t.text, b[:min(len(b), t.most-len(t.text))]...)
	return len(b), nil
}

func (t *tail) String() string { return strings.ToValidUTF8(string(t.text), "?") }
