package runc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/driver/socket"
	"github.com/podd-project/podd/oci/process"
	"github.com/podd-project/podd/oci/runc/conmon"
)

// Runtimes with their own kernel (gVisor's runsc) run all containers of a pod in one sandbox, which is the process of
// the pod's infra container. The others are subcontainers: they have no process on the host, so the monitor watches an
// init proxy (see oci/runc/initproxy), signals are sent by the runtime, and their cgroups are empty.

// sandboxAnnotation names the container whose sandbox the container runs in.
const sandboxAnnotation = "io.kubernetes.cri.sandbox-id"

// sandboxTimeout bounds a command that the sandbox must answer. A sandbox that hangs is killed from outside.
const sandboxTimeout = 10 * time.Second

// sandboxOf returns the container whose sandbox the new one will run in, "" on the host's kernel.
func (r *Runtime) sandboxOf(req oci.CreateRequest) string {
	switch {
	case !r.capabilities().features.OwnKernel:
		return ""
	case req.PodID == "":
		return req.ID
	}
	return req.PodID
}

// isSubcontainer reports whether a container runs in the sandbox of another.
func isSubcontainer(id, sandbox string) bool { return sandbox != "" && sandbox != id }

func (rec record) isSubcontainer(id string) bool { return isSubcontainer(id, rec.Sandbox) }

// viaInitProxy returns the command that the monitor calls instead of the runtime. image is that of the container to
// create, if any.
func (r *Runtime) viaInitProxy(runtime conmon.Runtime, image string) conmon.Runtime {
	args := append([]string{runtime.Path}, runtime.Args...)
	if image != "" {
		args = append([]string{"--restore", image}, args...)
	}
	return conmon.Runtime{Path: r.cfg.InitProxy, Args: append(args, "--")}
}

// subcontainerLog is the runtime's log, which has the reason if a subcontainer cannot be started.
func (b bundle) subcontainerLog() string { return b.File("runtime.log") }

// ownCgroups are the cgroup directories that hold only the container's processes. Those of a subcontainer hold none.
func (r *Runtime) ownCgroups(b bundle, rec record) cgroups.Dirs {
	if !rec.isSubcontainer(b.ID()) {
		return cgroups.DirsOf(rec.Init.Pid)
	}
	s, err := b.spec()
	if err != nil || s.Linux == nil || r.cfg.SystemdCgroup {
		return nil
	}
	return cgroups.DirsAt(s.Linux.CgroupsPath)
}

// startSubcontainer has the init proxy start the container, and waits for its answer. The start continues if ctx ends.
func (r *Runtime) startSubcontainer(ctx context.Context, b bundle) error {
	conn, err := socket.Dial("unix", b.Dir(), "start")
	if err != nil {
		return fmt.Errorf("init proxy: %w: %w", err, errdefs.ErrFailedPrecondition)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	var code [1]byte
	if _, err := io.ReadFull(conn, code[:]); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("init proxy: %w", err)
	}
	if code[0] != 0 {
		return driver.Failure("runsc start", shorten(readLogErrors(b.subcontainerLog())))
	}
	return nil
}

// readLogErrors returns the error messages of a log of JSON objects.
func readLogErrors(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	var texts []string
	for d := json.NewDecoder(io.LimitReader(f, outputLimit)); ; {
		var line struct{ Level, Msg string }
		if d.Decode(&line) != nil {
			return strings.ToValidUTF8(strings.Join(texts, "; "), "?")
		}
		if line.Level == "error" {
			texts = append(texts, line.Msg)
		}
	}
}

// signalSubcontainer has the runtime send a signal. If it cannot, SIGKILL ends the init proxy: the sandbox is gone, or
// it hangs and will be killed as a whole. The init proxy of a container that was not started is killed, too: nothing
// else ends it.
func (r *Runtime) signalSubcontainer(ctx context.Context, b bundle, rec record, sig syscall.Signal) error {
	if !rec.Init.Alive() || sig == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, sandboxTimeout)
	defer cancel()
	_, err := r.runRuntime(ctx, nil, "kill", b.ID(), strconv.Itoa(int(sig)))
	switch {
	case sig == syscall.SIGKILL && (err != nil || !b.isStarted()):
		return rec.Init.Signal(sig)
	case err == nil:
		return nil
	case !rec.Init.Alive():
		return nil
	case sig > driver.LastNamedSignal:
		return r.signalSubcontainer(ctx, b, rec, syscall.SIGTERM)
	}
	return fmt.Errorf("signal %d: %w", int(sig), err)
}

// removeSubcontainer kills a subcontainer in its sandbox and removes it there. Without a sandbox there is nothing to
// do.
func (r *Runtime) removeSubcontainer(ctx context.Context, b bundle, rec record) error {
	if !rec.isSubcontainer(b.ID()) {
		return nil
	}
	if !r.sandboxAlive(rec) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, sandboxTimeout)
	defer cancel()
	if b.frozen(rec) {
		_, _ = r.runRuntime(ctx, nil, "resume", b.ID()) // otherwise killed processes would not exit
	}
	if err := r.forceDelete(ctx, b.ID()); err != nil && r.sandboxAlive(rec) {
		return fmt.Errorf("remove from its sandbox: %w", err)
	}
	if rec.Init == (process.Process{}) {
		return nil
	}
	// The init proxy exits with the container's exit status, unless it was not waiting for it.
	grace, stop := context.WithTimeout(ctx, monitorGrace)
	defer stop()
	if b.isStarted() {
		_ = rec.Init.Wait(grace)
	}
	return nil
}

// forceDelete runs `<runtime> delete --force`.
func (r *Runtime) forceDelete(ctx context.Context, id string) error {
	_, err := r.runRuntime(ctx, nil, "delete", "--force", id)
	if errdefs.IsNotFound(err) || errdefs.IsUnavailable(err) {
		return nil
	}
	return err
}

// sandboxAlive reports whether the process of the subcontainer's sandbox is alive.
func (r *Runtime) sandboxAlive(rec record) bool {
	_, sandbox, err := r.open(rec.Sandbox)
	return err == nil && sandbox.Init.Alive()
}

// launchInSandbox runs the exec of a runtime with its own kernel, which passes its descriptors on and returns when the
// command has exited. The command is not on the host: it is killed by its pid in the sandbox.
func (r *Runtime) launchInSandbox(
	ctx context.Context, b bundle, f execFiles, stdio [3]*os.File,
) (*launchedCommand, int, error) {
	f.opts = append(f.opts, "--internal-pid-file", f.innerPidFile())
	cmd, child, err := r.launchDirect(ctx, b, f, stdio)
	if err != nil {
		return nil, 0, err
	}
	cmd.signalInSandbox = r.signalInSandbox(record{Sandbox: b.ID()}, b, f.innerPidFile())
	return cmd, child, nil
}

// signalInSandbox returns the function that signals the command with the pid in the file, nil on the host's kernel.
func (r *Runtime) signalInSandbox(rec record, b bundle, file string) func(ctx context.Context, flag, signal string) {
	if rec.Sandbox == "" {
		return nil
	}
	return func(ctx context.Context, flag, signal string) {
		pid, err := os.ReadFile(file)
		if err != nil {
			return // not started
		}
		_, _ = r.runRuntime(ctx, nil, "kill", flag+strings.TrimSpace(string(pid)), b.ID(), signal)
	}
}

// paused marks containers that are not frozen by a cgroup.
func (b bundle) paused() string { return b.File("paused") }

// frozen reports whether the container is paused.
func (b bundle) frozen(rec record) bool {
	if rec.Sandbox == "" {
		return rec.Cgroups.Frozen()
	}
	return driver.FileExists(b.paused())
}

// markFrozen writes or removes the mark of a container that is not frozen by a cgroup.
func (b bundle) markFrozen(rec record, on bool) error {
	if rec.Sandbox == "" {
		return nil
	}
	if on {
		return os.WriteFile(b.paused(), nil, 0o600)
	}
	if err := os.Remove(b.paused()); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (b bundle) isStarted() bool { return driver.FileExists(b.started()) }
