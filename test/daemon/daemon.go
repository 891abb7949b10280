// Package daemon starts a real podd on private directories, with a network of its own and the test registry, for the
// integration tests and for critest. It plays the service manager (start, stop, kill -9) and what an installer would
// lay out (configuration, CNI conf list, registries.conf); the tests play the kubelet, through the socket.
//
// Everything it makes lies below one directory and is removed by Close, which also looks at what podd has left of it.
// It is imported by tests and commands below test/ only.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/images"
)

// Options say what is special about a daemon.
type Options struct {
	// Binary is podd; empty means <repo>/bin/podd.
	Binary string
	// Handler is the default runtime handler; empty means runc.
	Handler string
	// Set are further configuration keys, as a line of TOML: `image.pull_grace="1s"`.
	Set []string
	// Registry serves the images.
	Registry *images.Registry
	// Gated puts Daemon.Gates before every program that the daemon runs.
	Gated bool
	// RunOnTmpfs puts what is gone after a reboot into memory, as /run is on a node.
	RunOnTmpfs bool
}

// Daemon is a podd, running or not.
type Daemon struct {
	// Dir holds everything; Socket is where it listens.
	Dir, Socket string
	// Bridge is the pods' network interface on the host.
	Bridge string
	// CgroupParent is below which the tests put their pods.
	CgroupParent string
	// Gates stand before the programs that the daemon runs, with Options.Gated.
	Gates Gates

	Runtime cri.RuntimeServiceClient
	Images  cri.ImageServiceClient

	opts Options
	repo string
	conn *grpc.ClientConn
	cmd  *exec.Cmd
	done chan error // the daemon's end
}

// New lays out the directories and the configuration. It starts nothing.
func New(o Options) (*Daemon, error) {
	repo, err := Repository()
	if err != nil {
		return nil, err
	}
	if o.Binary == "" {
		o.Binary = filepath.Join(repo, "bin", "podd")
	}
	if o.Handler == "" {
		o.Handler = "runc"
	}
	// A short path: a socket's may have 107 bytes. Searchable by all: containers in a user namespace must get through.
	dir, err := os.MkdirTemp("/tmp", "podd-t-")
	if err != nil {
		return nil, err
	}
	d := &Daemon{Dir: dir, Socket: filepath.Join(dir, "run", "podd.sock"), opts: o, repo: repo}
	d.CgroupParent = cgroupParent(filepath.Base(dir))
	if err := errors.Join(os.Chmod(dir, 0o755), d.layOut()); err != nil {
		return nil, errors.Join(fmt.Errorf("lay out %s: %w", dir, err), d.unmount(), os.RemoveAll(dir))
	}
	d.conn, err = grpc.NewClient("unix://"+d.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	d.Runtime, d.Images = cri.NewRuntimeServiceClient(d.conn), cri.NewImageServiceClient(d.conn)
	return d, nil
}

// cgroupParent is the name's cgroup as the kubelet would write it: a slice under systemd, else a path.
func cgroupParent(name string) string {
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		return strings.ReplaceAll(name, "-", "") + ".slice" // a dash would mean a slice within a slice
	}
	return "/" + name
}

// Repository finds the root of the source tree that this test runs in.
func Repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("not inside a Go module: %w", os.ErrNotExist)
}

// LogFile is where the daemon's log goes, of all its runs.
func (d *Daemon) LogFile() string { return filepath.Join(d.Dir, "podd.log") }

// Start runs the daemon and returns when it answers. args go to podd.
func (d *Daemon) Start(ctx context.Context, args ...string) error {
	log, err := os.OpenFile(d.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(d.opts.Binary, append([]string{"--config", filepath.Join(d.Dir, "podd.toml")}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	// a nap of a second in each child that unpacks a layer
	cmd.Env = append(os.Environ(), "GORACE=halt_on_error=0 atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a ^C at the test must not reach it
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start podd: %w", err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait(); close(done) }()
	d.cmd, d.done = cmd, done
	if d.opts.Gated {
		if err := d.Gates.daemonIs(cmd.Process.Pid); err != nil {
			return err
		}
	}
	return d.ready(ctx)
}

// ready waits until the daemon answers; it says why when it ends instead.
func (d *Daemon) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		attempt, stop := context.WithTimeout(ctx, time.Second)
		_, err := d.Runtime.Version(attempt, &cri.VersionRequest{})
		stop()
		if err == nil {
			return nil
		}
		select {
		case end := <-d.done:
			return fmt.Errorf("podd ended instead of serving: %w\n%s", errors.Join(end), d.LogTail(20))
		case <-ctx.Done():
			return fmt.Errorf("podd does not answer: %w\n%s", err, d.LogTail(20))
		case <-time.After(5 * time.Millisecond):
			d.conn.ResetConnectBackoff() // or the client waits a second before it looks for the new daemon
		}
	}
}

// Command is the command line that starts the daemon.
func (d *Daemon) Command() string { return d.opts.Binary + " --config " + d.Path("podd.toml") }

// Pid is the running daemon's.
func (d *Daemon) Pid() int { return d.cmd.Process.Pid }

// Running is true between Start and the daemon's end.
func (d *Daemon) Running() bool {
	if d.cmd == nil {
		return false
	}
	select {
	case <-d.done:
		return false
	default:
		return true
	}
}

// Stop asks the daemon to stop, and waits. Pods stay.
func (d *Daemon) Stop() error { return d.end(syscall.SIGTERM) }

// Kill9 kills it without warning, and waits.
func (d *Daemon) Kill9() error {
	if err := d.end(syscall.SIGKILL); err != nil && !isKilled(err) {
		return err
	}
	return nil
}

func isKilled(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// end sends the signal and waits for the daemon to go.
func (d *Daemon) end(sig syscall.Signal) error {
	if !d.Running() {
		return errors.New("podd is not running\n" + d.LogTail(20))
	}
	if err := d.cmd.Process.Signal(sig); err != nil {
		return err
	}
	select {
	case err := <-d.done:
		return err
	case <-time.After(time.Minute):
		return errors.Join(fmt.Errorf("podd does not end a minute after %v\n%s", sig, d.LogTail(20)), d.cmd.Process.Kill())
	}
}

// Restart stops the daemon by the given end (Stop or Kill9) and starts it again.
func (d *Daemon) Restart(ctx context.Context, end func() error) error {
	if err := end(); err != nil {
		return err
	}
	return d.Start(ctx)
}

// Use makes the next start one of another binary.
func (d *Daemon) Use(binary string) { d.opts.Binary = binary }
