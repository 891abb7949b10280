package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/capability"
	"github.com/sirupsen/logrus"
	"go.podman.io/storage/pkg/reexec"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/image/child"
	"github.com/podd-project/podd/image/confine"
)

// Names under which this program runs itself for a pull.
const (
	confineCommand = "podd-confine-pull" // restricts itself and becomes pullCommand
	pullCommand    = "podd-pull"
	// unpackPrefix begins the names of containers/storage's processes, which pullCommand starts for each layer.
	unpackPrefix = "storage-"
)

// Variables of these processes.
const (
	rootEnv      = "PODD_IMAGE_ROOT"
	runRootEnv   = "PODD_IMAGE_RUN_ROOT"
	readableEnv  = "PODD_READABLE"   // separated by newlines
	pullDirEnv   = "PODD_PULL_DIR"   // Job.Dir
	maxBytesEnv  = "PODD_MAX_BYTES"  // Config.MaxImageBytes
	maxMemoryEnv = "PODD_MAX_MEMORY" // Config.PullMemory
	offlineEnv   = "PODD_OFFLINE"    // Job.offline
	idleEnv      = "PODD_IDLE"       // Job.Idle
)

// Limits of a pull's process in addition to those of the configuration.
const (
	maxPullCPU       = 2 * 60 * 60 // seconds
	maxPullOpenFiles = 4096
	minFileSize      = 1 << 30 // for the library's own files, bytes
)

// Register registers the commands of these processes. The program's main must call reexec.Init next. It does not return
// an error in a process that unpacks a layer, but ends it.
func Register() {
	if strings.HasPrefix(os.Args[0], unpackPrefix) {
		if err := limitUnpacking(); err != nil {
			child.Fail(err)
		}
	}
	reexec.Register(confineCommand, func() { child.Fail(runConfined()) })
	reexec.Register(pullCommand, func() { os.Exit(runPull(os.Stdin, os.Stdout)) })
}

// runConfined restricts the process, before it has read any input, and runs pullCommand in it.
func runConfined() error {
	if err := child.PreferKilling(); err != nil {
		return err
	}
	policy, err := pullPolicy()
	if err != nil {
		return err
	}
	return policy.Exec([]string{pullCommand}, os.Environ())
}

// pullPolicy returns the rights of a pull's process, from its environment.
func pullPolicy() (confine.Policy, error) {
	p := confine.Policy{
		Memory: child.HardMemory(envInt(maxMemoryEnv)), FileSize: max(envInt(maxBytesEnv), minFileSize), CPU: maxPullCPU,
		OpenFiles: maxPullOpenFiles, Idle: os.Getenv(idleEnv) == "true",
		Read:    slices.Concat(systemPaths, strings.Split(os.Getenv(readableEnv), "\n")),
		Write:   []string{"/dev/null"},
		Execute: libraryPaths(),
		Offline: os.Getenv(offlineEnv) == "true",
	}
	root, runRoot := os.Getenv(rootEnv), os.Getenv(runRootEnv)
	if root == "" { // Job.Part
		return p, nil
	}
	write, err := writable(root)
	p.Write, p.Data = append(append(p.Write, write...), runRoot), []string{root, runRoot}
	p.Capabilities = []capability.Cap{
		capability.CAP_CHOWN, capability.CAP_DAC_OVERRIDE, capability.CAP_FOWNER, capability.CAP_FSETID,
		capability.CAP_MKNOD, capability.CAP_SETFCAP, capability.CAP_SYS_CHROOT,
		capability.CAP_SYS_ADMIN, // for trusted.overlay attributes; the filter of system calls denies the rest
	}
	return p, err
}

// writable returns the paths that a pull changes below the store's root: everything but the root filesystems of
// containers and podd's own files.
func writable(root string) ([]string, error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		switch e.Name() {
		case rootfsDir, tempDir, integrityFile, preloadedFile, ballastFile:
		default:
			out = append(out, filepath.Join(root, e.Name()))
		}
	}
	return append(out, os.Getenv(pullDirEnv)), nil
}

// envInt returns 0, which means no limit, for a variable that is not set.
func envInt(name string) uint64 {
	n, _ := strconv.ParseUint(os.Getenv(name), 10, 64)
	return n
}

// runPull does the job on stdin and returns the exit status.
func runPull(stdin io.Reader, stdout io.Writer) int {
	logrus.SetOutput(os.Stderr)
	logrus.SetLevel(logrus.ErrorLevel)
	unix.CloseOnExec(credentialsFD) // not for the processes that unpack layers
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go child.WatchMemory(envInt(maxMemoryEnv))
	input := json.NewDecoder(stdin)
	var job Job
	if err := input.Decode(&job); err != nil {
		child.Fail(fmt.Errorf("read the job: %w", err))
	}
	replies := make(chan Found, 1)
	go func() { // the daemon sends nothing else: it closes the pipe, or dies
		readReplies(input, replies)
		cancel()
	}()
	out := newReporter(stdout)
	result, err := doPull(ctx, job, out, replies)
	last := pullReport{Kind: reportDone, Result: result}
	if err != nil {
		last = failedReport(err)
	}
	if err := out.send(last); err != nil {
		child.Fail(err)
	}
	return 0
}
