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
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/driver/socket"
	"github.com/podd-project/podd/oci/process"
	"github.com/podd-project/podd/oci/runc/conmon"
)

// Runtimes with a kernel of their own (gVisor's runsc) put all containers of a pod into one sandbox, which is the
// process of the pod's infra container. The other containers are guests in it: none of their processes is on the
// host, so the monitor watches a stand-in (see oci/runc/initproxy), signals go by way of the runtime, and the control
// groups of a guest hold nothing.

// sandboxAnnotation names the container whose sandbox a container of such a runtime runs in.
const sandboxAnnotation = "io.kubernetes.cri.sandbox-id"

// insideTimeout bounds a verb that the kernel inside must answer: a sandbox that hangs is killed from outside.
const sandboxTimeout = 10 * time.Second

// sandboxOf is the container in whose sandbox the new one will run, "" on the host's kernel.
func (r *Runtime) sandboxOf(req oci.CreateRequest) string {
	switch {
	case !r.capabilities().features.OwnKernel:
		return ""
	case req.PodID == "":
		return req.ID
	}
	return req.PodID
}

// isGuest tells whether a container runs in the sandbox of another.
func isSubcontainer(id, sandbox string) bool { return sandbox != "" && sandbox != id }

func (rec record) isSubcontainer(id string) bool { return isSubcontainer(id, rec.Sandbox) }

// standIn is what the monitor calls in place of the runtime.
func (r *Runtime) viaInitProxy(runtime conmon.Runtime) conmon.Runtime {
	args := append([]string{runtime.Path}, runtime.Args...)
	return conmon.Runtime{Path: r.cfg.InitProxy, Args: append(args, "--")}
}

// guestLog is where the runtime complains when it cannot start a guest.
func (b bundle) subcontainerLog() string { return b.File("runtime.log") }

// ownCgroups are the cgroup directories that hold the container's processes and nobody else's. A guest's hold none.
func (r *Runtime) ownCgroups(b bundle, rec record) cgroups.Dirs {
	if !rec.isSubcontainer(b.ID()) {
		return cgroups.DirsOf(rec.Init.Pid)
	}
	var s specs.Spec
	data, err := os.ReadFile(b.Config())
	if err != nil || json.Unmarshal(data, &s) != nil || s.Linux == nil || r.cfg.SystemdCgroup {
		return nil
	}
	return cgroups.DirsAt(s.Linux.CgroupsPath)
}

// startGuest tells the stand-in to have the runtime start the container, and waits for its answer. It goes on when
// nobody waits any more.
func (r *Runtime) startSubcontainer(ctx context.Context, b bundle) error {
	conn, err := socket.Dial("unix", b.Dir(), "start")
	if err != nil {
		return fmt.Errorf("stand-in: %w: %w", err, errdefs.ErrFailedPrecondition)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	var code [1]byte
	if _, err := io.ReadFull(conn, code[:]); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("stand-in: %w", err)
	}
	if code[0] != 0 {
		return driver.Failure("runsc start", readLogErrors(b.subcontainerLog()))
	}
	return nil
}

// logged returns the error messages of a log in JSON, one object after the other.
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

// signalGuest has the runtime send a signal. When it cannot, a SIGKILL ends the stand-in: the container's sandbox is gone, or
// it hangs and will be killed whole. That of a container that was not started waits for nobody but us.
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
	}
	return fmt.Errorf("signal %d: %w", int(sig), err)
}

// endInside ends a guest inside its sandbox, and removes it there. Without a sandbox there is nothing to end.
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
		_, _ = r.runRuntime(ctx, nil, "resume", b.ID()) // else what is killed would not end
	}
	if err := r.forceDelete(ctx, b.ID()); err != nil && r.sandboxAlive(rec) {
		return fmt.Errorf("end in its sandbox: %w", err)
	}
	if rec.Init == (process.Process{}) {
		return nil
	}
	// The stand-in ends by itself now, with the container's exit status, unless it never waited for it.
	grace, stop := context.WithTimeout(ctx, monitorGrace)
	defer stop()
	if b.isStarted() {
		_ = rec.Init.Wait(grace)
	}
	return nil
}

// runtimeForce runs `<runtime> delete --force`.
func (r *Runtime) forceDelete(ctx context.Context, id string) error {
	_, err := r.runRuntime(ctx, nil, "delete", "--force", id)
	if errdefs.IsNotFound(err) || errdefs.IsUnavailable(err) {
		return nil
	}
	return err
}

// sandboxLives tells whether the process of the guest's sandbox does.
func (r *Runtime) sandboxAlive(rec record) bool {
	host, err := r.bundle(rec.Sandbox)
	if err != nil {
		return false
	}
	sandbox, err := host.load()
	return err == nil && sandbox.Init.Alive()
}

// launchInSandbox runs the exec verb of a runtime with a kernel of its own, which hands its descriptors over and
// returns when the command has ended. That command is not on the host: killing it takes the pid that it has inside.
func (r *Runtime) launchInSandbox(ctx context.Context, b bundle, f execFiles, stdio [3]*os.File) (*launchedCommand, int, error) {
	f.opts = append(f.opts, "--internal-pid-file", f.innerPidFile())
	cmd, child, err := r.launchDirect(ctx, b, f, stdio)
	if err != nil {
		return nil, 0, err
	}
	cmd.killInSandbox = r.killInSandbox(record{Sandbox: b.ID()}, b, f.innerPidFile())
	return cmd, child, nil
}

// killInside returns what kills the command whose inner pid will be in the file, nil for one on the host's kernel.
func (r *Runtime) killInSandbox(rec record, b bundle, file string) func(context.Context) {
	if rec.Sandbox == "" {
		return nil
	}
	return func(ctx context.Context) {
		pid, err := os.ReadFile(file)
		if err != nil {
			return // not started
		}
		// Both, and neither needs to succeed: what it has started is in its process group unless it left it.
		for _, flag := range []string{"--pgid=", "--pid="} {
			_, _ = r.runRuntime(ctx, nil, "kill", flag+strings.TrimSpace(string(pid)), b.ID(), "KILL")
		}
	}
}

// paused is a mark, for containers that are not frozen by a control group.
func (b bundle) paused() string { return b.File("paused") }

// frozen tells whether the container is paused.
func (b bundle) frozen(rec record) bool {
	if rec.Sandbox == "" {
		return rec.Cgroups.Frozen()
	}
	return driver.FileExists(b.paused())
}

// markFrozen remembers what the kernel does not tell.
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
