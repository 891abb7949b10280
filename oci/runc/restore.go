package runc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/process"
	"github.com/podd-project/podd/oci/runc/conmon"
	"github.com/podd-project/podd/oci/runc/criu"
	"github.com/podd-project/podd/oci/thread"
)

// CRIU restores processes that run at once. So a container that is restored has no process until Start, which has a
// monitor call `runc restore` instead of `runc create`. The restore cannot be repeated: it changes the namespaces that
// the container joins, of its pod.

// restore is the part of oci.CreateRequest that Start needs.
type restore struct {
	Name      string `json:"name"`
	Terminal  bool   `json:"terminal,omitempty"`
	Stdin     bool   `json:"stdin,omitempty"`
	StdinOnce bool   `json:"stdinOnce,omitempty"`
}

// pending reports whether the container has not been restored.
func (rec record) pending() bool { return rec.Restore != nil && rec.Init == (process.Process{}) }

// restoring marks that Start has begun to restore the container.
func (b bundle) restoring() string { return b.File("restoring") }

func (b bundle) restoreBegan() bool { return driver.FileExists(b.restoring()) }

// prepareRestore is Create for a container that CRIU restores. It checks the images, which podd has copied, and adapts
// them to the pod.
func (b bundle) prepareRestore(ctx context.Context, req oci.CreateRequest, rec record) error {
	if err := errors.Join(criu.CheckPrivileges(req.Image, req.Spec), criu.CheckMounts(req.Spec)); err != nil {
		return err
	}
	if path := namespacePath(req.Spec, specs.UTSNamespace); path != "" {
		hostname, err := hostnameIn(path)
		if err == nil {
			err = criu.SetHostname(req.Image, hostname)
		}
		if err != nil {
			return fmt.Errorf("host name of the restored container: %w", err)
		}
	}
	rec.Restore = &restore{Name: req.Name, Terminal: req.Terminal, Stdin: req.Stdin, StdinOnce: req.StdinOnce}
	return errors.Join(b.save(rec), context.Cause(ctx))
}

// namespacePath returns the namespace that the container joins, "" if it has its own or the host's.
func namespacePath(s *specs.Spec, kind specs.LinuxNamespaceType) string {
	if s.Linux == nil {
		return ""
	}
	for _, n := range s.Linux.Namespaces {
		if n.Type == kind {
			return n.Path
		}
	}
	return ""
}

// hostnameIn returns the host name of a UTS namespace.
func hostnameIn(path string) (name string, err error) {
	err = thread.InNamespace(path, unix.CLONE_NEWUTS, func() error {
		var u unix.Utsname
		if err := unix.Uname(&u); err != nil {
			return err
		}
		name = unix.ByteSliceToString(u.Nodename[:])
		return nil
	})
	return name, err
}

// restoreContainer is Start for a container that CRIU restores. After an error no process of it is left.
func (r *Runtime) restoreContainer(ctx context.Context, b bundle, rec record) error {
	unlock, err := r.dumps.Lock(ctx, b.ID())
	if err != nil {
		return err
	}
	defer unlock()
	if b.restoreBegan() {
		return fmt.Errorf("%w: container %s was restored, or could not be: that cannot be repeated in the same pod",
			errdefs.ErrFailedPrecondition, b.ID())
	}
	path, err := r.lookupCRIU(ctx)
	if err != nil {
		return err
	}
	c, err := r.monitorConfig(b, oci.CreateRequest{
		ID: b.ID(), Name: rec.Restore.Name, Terminal: rec.Restore.Terminal,
		Stdin: rec.Restore.Stdin, StdinOnce: rec.Restore.StdinOnce,
	})
	if err != nil {
		return err
	}
	work := b.File(workDir)
	c.Env, c.Restore = criuEnvironment(path), rec.Image
	c.RestoreFlags = []string{"--file-locks", "--manage-cgroups-mode", "ignore", "--work-path", work}
	if err := errors.Join(b.writeCRIUOptions(), os.WriteFile(b.restoring(), nil, 0o600)); err != nil {
		return err
	}
	if _, err = r.createContainer(ctx, b, c, rec); err == nil {
		return nil
	}
	log, _ := readTail(filepath.Join(work, restoreLog))
	return errors.Join(restoreError(ctx, log, err), r.undoCreate(b, ctx.Err() != nil))
}

// restoreLog is the log of CRIU in workDir.
const restoreLog = "restore.log"

// restoreError returns why CRIU has failed.
func restoreError(ctx context.Context, log string, err error) error {
	text := criuErrors(log)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("restore: %w", context.Cause(ctx))
	case text == "":
		return err
	}
	return fmt.Errorf("%w: CRIU cannot restore the container: %.1000q", errdefs.ErrFailedPrecondition, text)
}

// completeRestore returns the record of a pending container with its processes, if a podd that was killed has begun to
// restore it and it runs. It waits for the end of a restore that is under way.
func (r *Runtime) completeRestore(ctx context.Context, b bundle, rec record) (record, error) {
	unlock, err := r.dumps.Lock(ctx, b.ID())
	if err != nil {
		return rec, err
	}
	defer unlock()
	if now, err := b.load(); err != nil || !now.pending() {
		return now, err
	}
	if !b.restoreBegan() {
		return rec, nil
	}
	monitor, ok, err := r.awaitMonitor(ctx, b)
	if err != nil {
		return rec, fmt.Errorf("find the monitor of a restore that a stopped podd began: %w", err)
	}
	if !ok {
		return rec, forgetRestore(b)
	}
	var pid int
	err = process.Poll(ctx, func() bool {
		pid, err = conmon.InitPid(b.Dir())
		return err == nil || !monitor.Alive()
	})
	if err != nil {
		return rec, fmt.Errorf("wait for the restore that a stopped podd began: %w", err)
	}
	init, err := process.Identify(pid)
	if err != nil || !monitor.Alive() { // the monitor is the parent: while it is alive, the pid was not reused
		return rec, nil // the restore has failed, or the container has exited
	}
	rec.Init, rec.Monitor = init, monitor
	rec.Cgroups = r.ownCgroups(b, rec)
	return rec, errors.Join(b.adjustRestored(rec.Cgroups), b.save(rec), os.WriteFile(b.started(), nil, 0o600))
}

// adjustRestored sets what CRIU takes from its images although config.json may have another value: oom_score_adj, which
// follows the memory that this container asks for, or the kernel would kill others first.
func (b bundle) adjustRestored(group cgroups.Dirs) error {
	s, err := b.spec()
	if err != nil || s.Process == nil || s.Process.OOMScoreAdj == nil {
		return err
	}
	return group.AdjustOOM(*s.Process.OOMScoreAdj)
}

// forgetRestore lets Start restore the container if a podd was killed before it had started a monitor.
func forgetRestore(b bundle) error {
	if driver.FileExists(conmon.MonitorPidFile(b.Dir())) {
		return nil
	}
	return os.Remove(b.restoring())
}

// unmountRestore removes the mount that a runtime leaves in its state of the container when it is killed while it
// restores. It is the root filesystem, with the volumes in it: who removes the state must not get there.
func (r *Runtime) unmountRestore(b bundle, rec record) error {
	if rec.Restore == nil && !b.restoreBegan() {
		return nil
	}
	path := filepath.Join(r.cfg.Root, b.ID(), "criu-root")
	err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err == nil || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return &os.PathError{Op: "umount", Path: path, Err: err}
}
