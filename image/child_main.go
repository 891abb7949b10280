package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/capability"
	"github.com/sirupsen/logrus"
	"go.podman.io/storage/pkg/reexec"
	"golang.org/x/sys/unix"

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
	pullDirEnv   = "PODD_PULL_DIR"   // pullJob.Dir
	maxBytesEnv  = "PODD_MAX_BYTES"  // Config.MaxImageBytes
	maxMemoryEnv = "PODD_MAX_MEMORY" // Config.PullMemory
	offlineEnv   = "PODD_OFFLINE"    // pullJob.offline
	idleEnv      = "PODD_IDLE"       // pullJob.Idle
)

// Limits of a pull's process beside those of Config.
const (
	maxPullCPU       = 2 * 60 * 60 // seconds
	maxPullOpenFiles = 4096
	minFileSize      = 1 << 30 // for the library's own files, bytes
)

// Init must be the first call in the main function of a program that opens a Store, which must end if it returns true:
// pulls and the unpacking of layers run in processes of the same program.
func Init() bool {
	if strings.HasPrefix(os.Args[0], unpackPrefix) {
		if err := limitUnpacking(); err != nil {
			fail(err)
		}
	}
	reexec.Register(confineCommand, func() { fail(runConfined()) })
	reexec.Register(pullCommand, func() { os.Exit(runPull(os.Stdin, os.Stdout)) })
	reexec.Register(storeCommand, func() {
		if err := runStoreJob(os.Stdin, os.Stdout); err != nil {
			fail(err)
		}
		os.Exit(0)
	})
	reexec.Register(helperCommand, func() {
		if err := runHelpers(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		killGroup()
	})
	return reexec.Init()
}

// fail ends a process that Init runs.
func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// runConfined restricts the process, before it has read any input, and runs pullCommand in it.
func runConfined() error {
	if err := preferKilling(); err != nil {
		return err
	}
	policy, err := pullPolicy()
	if err != nil {
		return err
	}
	return policy.Exec([]string{pullCommand}, os.Environ())
}

// preferKilling makes this process one of the first that the kernel ends when memory is short: the daemon's unit
// protects the daemon from that, its pulls are not worth it.
func preferKilling() error {
	return os.WriteFile("/proc/self/oom_score_adj", []byte("500"), 0)
}

// pullPolicy returns what a pull's process may do, from its environment.
func pullPolicy() (confine.Policy, error) {
	write, err := writable(os.Getenv(rootEnv))
	if err != nil {
		return confine.Policy{}, err
	}
	return confine.Policy{
		Memory: hardMemory(envInt(maxMemoryEnv)), FileSize: max(envInt(maxBytesEnv), minFileSize), CPU: maxPullCPU,
		OpenFiles: maxPullOpenFiles, Idle: os.Getenv(idleEnv) == "true",
		Read:    slices.Concat(systemPaths, strings.Split(os.Getenv(readableEnv), "\n")),
		Write:   append(write, os.Getenv(runRootEnv), "/dev/null"),
		Execute: libraryPaths(),
		Data:    []string{os.Getenv(rootEnv), os.Getenv(runRootEnv)},
		Offline: os.Getenv(offlineEnv) == "true",
		Capabilities: []capability.Cap{
			capability.CAP_CHOWN, capability.CAP_DAC_OVERRIDE, capability.CAP_FOWNER, capability.CAP_FSETID,
			capability.CAP_MKNOD, capability.CAP_SETFCAP, capability.CAP_SYS_CHROOT,
			capability.CAP_SYS_ADMIN, // for trusted.overlay attributes; the filter of system calls denies the rest
		},
	}, nil
}

// writable returns what a pull changes below the store's root: everything but the root filesystems of containers and
// podd's own files.
func writable(root string) ([]string, error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		switch e.Name() {
		case rootfsDir, tempDir, integrityFile, preloadedFile:
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
	go watchMemory(envInt(maxMemoryEnv))
	input := json.NewDecoder(stdin)
	var job pullJob
	if err := input.Decode(&job); err != nil {
		fail(fmt.Errorf("read the job: %w", err))
	}
	replies := make(chan storeReply, 1)
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
		fail(err)
	}
	return 0
}

// watchMemory ends the process with a clear message if it has more memory than most. The limit of the kernel is higher:
// it ends the process too, but with a dump of all goroutines.
func watchMemory(most uint64) {
	const interval = 20 * time.Millisecond
	samples := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}
	for range time.Tick(interval) {
		metrics.Read(samples)
		used := samples[0].Value.Uint64() - samples[1].Value.Uint64() - samples[2].Value.Uint64()
		if most > 0 && used > most {
			fail(errors.New(memoryText))
		}
	}
}

// memoryText is what a process says that has too much memory.
const memoryText = "the pull needs more memory than it may"

// hardMemory is the kernel's limit for a soft one: the Go runtime maps memory in pieces of 64 MiB.
func hardMemory(soft uint64) uint64 {
	if raceDetector || soft == 0 {
		return 0
	}
	return soft + 256<<20
}
