// Package daemon starts a real podd on private directories, with a network of its own and the test registry, for the
// integration tests and for critest. It does what the service manager does (start, stop, kill -9) and what an installer
// does (configuration, CNI conf list, registries.conf); the tests call the CRI socket as the kubelet does.
//
// Everything it makes is below one directory. Close removes it and reports what podd should have removed.
// Only tests and commands below test/ import it.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/images"
)

// Options configure a daemon.
type Options struct {
	// Binary is podd; empty means <repo>/bin/podd.
	Binary string
	// Handler is the default runtime handler; empty means runc.
	Handler string
	// Set are further configuration keys, as a line of TOML: `image.pull_grace="1s"`.
	Set []string
	// Registry serves the images.
	Registry *images.Registry
	// Under is a command line that executes podd, given as further arguments, in a changed process.
	Under []string
	// Gated runs every program of the daemon through Daemon.Gates.
	Gated bool
	// RunOnTmpfs mounts a tmpfs on the run directory, as /run is on a node.
	RunOnTmpfs bool
	// NoMasquerade gives pods a network that does not translate their addresses.
	NoMasquerade bool
}

// Daemon is one podd, running or stopped.
type Daemon struct {
	// Dir has all files of the daemon; Socket is its CRI socket.
	Dir, Socket string
	// Bridge is the pods' network interface on the host.
	Bridge string
	// CgroupParent is the parent cgroup of the tests' pods.
	CgroupParent string
	// Gates intercept the programs that the daemon runs, with Options.Gated.
	Gates Gates

	Runtime cri.RuntimeServiceClient
	Images  cri.ImageServiceClient

	opts Options
	repo string
	// ranges are the pods' addresses, as "ranges" of host-local's configuration.
	ranges [][]map[string]string
	conn   *grpc.ClientConn
	args   []string // of Use
	cmd    *exec.Cmd
	done   chan error // receives the daemon's exit, then is closed
}

// New creates the directories and the configuration. It starts nothing.
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
	// A short path: a socket's may have 107 bytes. Mode 0755: containers in a user namespace must be able to search it.
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

// cgroupParent returns the cgroup of this name as the kubelet writes it: a slice under systemd, else a path.
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

// LogFile is the path of the daemon's log, to which all its runs append.
func (d *Daemon) LogFile() string { return filepath.Join(d.Dir, "podd.log") }

// Start runs the daemon and returns when it answers on its socket. args are appended to podd's command line.
func (d *Daemon) Start(ctx context.Context, args ...string) error {
	log, err := os.OpenFile(d.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	args = slices.Concat([]string{"--config", filepath.Join(d.Dir, "podd.toml")}, d.args, args)
	line := slices.Concat(d.opts.Under, []string{d.opts.Binary}, args)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	// the race detector would sleep for a second at the exit of each child that unpacks a layer
	cmd.Env = append(os.Environ(), "GORACE=halt_on_error=0 atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a ^C at the test must not reach it
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start podd: %w", err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait(); close(done) }()
	d.cmd, d.done = cmd, done
	if d.opts.Gated {
		if err := d.Gates.setDaemon(cmd.Process.Pid); err != nil {
			return err
		}
	}
	return d.ready(ctx)
}

// ready waits until the daemon answers. If the daemon exits or does not answer, the error has the end of its log.
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
			return fmt.Errorf("podd exited before it answered: %w\n%s", errors.Join(end), d.LogTail(20))
		case <-ctx.Done():
			return fmt.Errorf("podd does not answer: %w\n%s", err, d.LogTail(20))
		case <-time.After(5 * time.Millisecond):
			d.conn.ResetConnectBackoff() // else the client waits a second before it connects again
		}
	}
}

// Command returns the command line that starts the daemon.
func (d *Daemon) Command() string { return d.opts.Binary + " --config " + d.Path("podd.toml") }

// Pid returns the process id of the running daemon.
func (d *Daemon) Pid() int { return d.cmd.Process.Pid }

// Running reports whether the daemon has been started and has not exited.
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

// Stop sends SIGTERM and waits for the exit. Pods keep running.
func (d *Daemon) Stop() error { return d.end(syscall.SIGTERM) }

// Kill9 sends SIGKILL and waits for the exit.
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

// end sends the signal and waits for the daemon's exit.
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
		return errors.Join(fmt.Errorf("podd still runs a minute after %v\n%s", sig, d.LogTail(20)), d.cmd.Process.Kill())
	}
}

// Restart calls end (Stop or Kill9) and starts the daemon again.
func (d *Daemon) Restart(ctx context.Context, end func() error) error {
	if err := end(); err != nil {
		return err
	}
	return d.Start(ctx)
}

// Use sets the binary of the next Start, and arguments for each Start until the next Use.
func (d *Daemon) Use(binary string, args ...string) { d.opts.Binary, d.args = binary, args }
