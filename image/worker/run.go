package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/image/child"
	"github.com/podd-project/podd/image/confine"
	"github.com/podd-project/podd/image/registry"
)

// pullGrace is how long a pull's process has to clean up after the request to stop, before it is killed.
const pullGrace = 10 * time.Second

// Result is the output of a pull's process.
type Result struct {
	// ID is the image's id, Digest that of the manifest (or list) that was requested.
	ID     string
	Digest digest.Digest
	// Loaded are the images of a file, in place of the above; those of a file that was loaded in part, too.
	Loaded []Loaded `json:"-"`
}

// Loaded is an image of a file that is in storage.
type Loaded struct {
	ID string
	// Names are full names, with a tag or a digest.
	Names []string
}

// Files of a pull's process: the credentials, and a pipe for Job.Part.
const (
	credentialsFD = 3
	partFD        = 4
)

// memoryTexts are messages of a process that gets no more memory: of child.WatchMemory, the Go runtime, the C library's
// threads, and the garbage collector of Go 1.26, which does not check whether it got memory for its queues. Elsewhere
// in a Go program an invalid address is a panic.
var memoryTexts = []string{
	child.MemoryText, "out of memory", "cannot allocate memory", "errno=11", "errno=12", "SIGSEGV: segmentation violation",
}

// childDeath explains why a pull's process died without an answer.
func childDeath(cfg registry.Config, died child.Exit) error {
	const crashed = 2 // status of a Go program after a panic or fatal error
	var exit *exec.ExitError
	switch {
	case !errors.As(died.Err, &exit):
		return died.Explain("the process of the pull")
	case exit.ExitCode() < 0:
		return fmt.Errorf("the process of the pull was killed (%w): %w", died.Err, errdefs.ErrResourceExhausted)
	}
	cause, _, _ := strings.Cut(died.Stderr, "\n\n") // the rest are stacks
	hasText := func(text string) bool { return strings.Contains(cause, text) }
	switch {
	case !strings.HasPrefix(cause, "panic: ") && slices.ContainsFunc(memoryTexts, hasText):
		return fmt.Errorf("unpacking the image takes more memory than pull_memory allows (%d bytes): %w",
			cfg.PullMemory, errdefs.ErrResourceExhausted)
	case exit.ExitCode() == crashed:
		line, _, _ := strings.Cut(cause, "\n")
		return fmt.Errorf("the process of the pull crashed (%.200q): podd's log has more; please report it", line)
	}
	return died.Explain("the process of the pull")
}

// keptEnv are the variables of the daemon that a pull uses: proxies, certificates, the time zone of messages. Without
// PATH the library decompresses itself instead of running programs.
var keptEnv = []string{
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "TZ", "GODEBUG", "GORACE",
}

func childEnv(job Job) []string {
	if job.Verify != "" || job.Part != nil {
		job.Config.DecryptionKeysPath = "" // it may not read the keys
	}
	env := []string{
		"TMPDIR=" + job.Dir, pullDirEnv + "=" + job.Dir,
		// Each layer needs buffers of several MiB, which would be most of a small heap: collecting garbage as often as
		// by default costs a fifth of a pull's CPU time.
		"GOGC=200",
		// The garbage collector works harder above this; the hard limit is the process's.
		"GOMEMLIMIT=" + strconv.FormatInt(job.Config.PullMemory/4*3, 10),
		maxBytesEnv + "=" + strconv.FormatInt(job.Config.MaxImageBytes, 10),
		maxMemoryEnv + "=" + strconv.FormatInt(job.Config.PullMemory, 10),
		rootEnv + "=" + job.Layout.Root, runRootEnv + "=" + job.Layout.RunRoot,
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

// Daemon is the part of a job that the daemon does.
type Daemon struct {
	Log logrus.FieldLogger
	// Progress may be nil for a job with a Part.
	Progress Observer
	// LookUp looks layers up in the additional layer store. Those that are not found are fetched. Nil: none may be.
	LookUp func(LookUp) (Found, error)
	// part is a pipe that gets Job.Part.
	part *os.File
}

// Run does a job in a confined process: the data of the registry are parsed, decompressed and unpacked there. It
// ends when ctx or the daemon does. Only the daemon calls it, and a command that fetches an artifact.
func Run(ctx context.Context, job Job, c *registry.PullConfig, d Daemon) (Result, error) {
	job.Config, job.Hosts, job.Dir = c.Config, c.Hosts, c.Dir
	job.Config.AuthFile = fmt.Sprintf("/proc/self/fd/%d", credentialsFD)
	files := []*os.File{c.Credentials} // credentialsFD
	if d.part != nil {
		files = append(files, d.part) // partFD
	}
	if job.offline() || job.Config.AdditionalLayerStore == "" {
		d.LookUp = nil
	}
	reports := newReportReader(d.Progress, d.LookUp)
	exit, err := child.Run(ctx, child.Process{
		Name: confineCommand, Env: childEnv(job), Files: files, Attributes: confine.Attributes(), Job: job,
		Grace: pullGrace, Idle: job.Idle, Log: d.Log,
	}, reports.take)
	if err != nil {
		return Result{}, fmt.Errorf("start the process of the pull: %w", err)
	}
	last := reports.result()
	part := Result{Loaded: last.Result.Loaded}
	switch {
	case exit.IO == nil && last.Kind == reportDone && exit.Err == nil:
		return last.Result, nil
	case ctx.Err() != nil:
		return part, context.Cause(ctx)
	case exit.IO == nil && last.Kind == reportFailed:
		return part, last.failure()
	}
	d.Log.WithField("image", job.Ref).WithField("output", exit.Stderr).Warn("the process of a pull has died")
	return part, errors.Join(childDeath(job.Config, exit), exit.IO)
}
