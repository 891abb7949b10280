package runc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/process"
	"github.com/podd-project/podd/oci/runc/thaw"
)

var _ oci.Dumper = (*Runtime)(nil)

const (
	// annotationCRIU names the file with the options of CRIU. runc reads it from the config.json with which the container
	// was created, and uses /etc/criu/runc.conf, of the node, without it.
	annotationCRIU = "org.criu.config"
	// optionsCRIU: connections are closed in the saved container, as KEP-5823 requires, and go on in the one that runs.
	// CRIU would lock the network only to keep them, by packet filter rules that stay if it is killed.
	optionsCRIU = "tcp-close\nnetwork-lock skip\n"
	// thawTimeout bounds how long Dump tries to thaw a container.
	thawTimeout = 10 * time.Second
	// workDir has what CRIU writes beside the images.
	workDir = "work"
)

func (b bundle) criuOptions() string { return b.File("criu.conf") }

// configureCRIU returns the spec of a container with the name of the file in which Dump writes the options of CRIU.
func (r *Runtime) configureCRIU(b bundle, spec *specs.Spec) *specs.Spec {
	if spec == nil || r.capabilities().features.OwnKernel {
		return spec
	}
	changed := *spec
	if changed.Annotations = maps.Clone(spec.Annotations); changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	changed.Annotations[annotationCRIU] = b.criuOptions()
	return &changed
}

// Dump implements oci.Dumper, with runc and CRIU.
func (r *Runtime) Dump(ctx context.Context, id, dir string, frozen func(context.Context) error) (err error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return fmt.Errorf("%w: a checkpoint needs a deadline", errdefs.ErrInvalidArgument)
	}
	b, err := r.bundle(id)
	if err != nil {
		return err
	}
	unlock, err := r.dumps.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	rec, criu, err := r.dumpable(ctx, b)
	if err != nil {
		return err
	}
	if err := checkSpace(dir, rec.Cgroups.AnonymousMemory()); err != nil {
		return err
	}
	guard, err := thaw.Start(r.cfg.Thaw, time.Until(deadline), rec.Cgroups.Thawing())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		<-guard.Done
		cancel(fmt.Errorf("%w: the container was thawed before it was saved", context.DeadlineExceeded))
	}()
	defer func() { err = errors.Join(err, guard.Close(), thawContainer(rec)) }()
	if err := rec.Cgroups.Freeze(ctx); err != nil {
		return err
	}
	if err := r.runCRIU(ctx, b, criu, dir, guard); err != nil {
		return err
	}
	return errors.Join(frozen(ctx), context.Cause(ctx))
}

// dumpable returns the record of a container that can be saved, and the path of CRIU.
func (r *Runtime) dumpable(ctx context.Context, b bundle) (record, string, error) {
	if !strings.HasPrefix(r.Features().Version, "runc ") {
		return record{}, "", fmt.Errorf("%w: %s", errdefs.ErrNotImplemented, r.Features().Checkpoints.NoContainers)
	}
	if r.cfg.Thaw == "" {
		return record{}, "", fmt.Errorf("%w: podd was built without the program that thaws containers: run make embedded",
			errdefs.ErrNotImplemented)
	}
	criu, err := r.lookupCRIU(ctx)
	if err != nil {
		return record{}, "", err
	}
	rec, err := checkRunning(b)
	if err != nil {
		return record{}, "", err
	}
	return rec, criu, checkOptions(b)
}

// checkSpace refuses to fill the disk of dir: it must hold the memory of the container, in bytes, and as much again.
func checkSpace(dir string, memory uint64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("free space of %s: %w", dir, err)
	}
	if free := st.Bavail * uint64(st.Bsize); free/2 < memory {
		return fmt.Errorf("%w: the container has %d bytes of memory, and the disk of %s only %d: twice as much is needed",
			errdefs.ErrResourceExhausted, memory, dir, free)
	}
	return nil
}

// checkOptions refuses a container that an earlier podd has created: CRIU would run with the options of the node.
func checkOptions(b bundle) error {
	data, err := os.ReadFile(b.Config())
	if err != nil {
		return fmt.Errorf("read container's spec: %w", err)
	}
	var config struct {
		Annotations map[string]string `json:"annotations"`
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return fmt.Errorf("parse container's spec: %w", err)
	}
	if config.Annotations[annotationCRIU] != b.criuOptions() {
		return fmt.Errorf("%w: container %s was created by an earlier podd, which did not configure CRIU: recreate it",
			errdefs.ErrFailedPrecondition, b.ID())
	}
	return nil
}

// runCRIU has the runtime save the frozen container. The guard kills both if podd does not.
func (r *Runtime) runCRIU(ctx context.Context, b bundle, criu, dir string, guard *thaw.Guard) error {
	path, err := r.lookup(r.cfg.Path)
	if err != nil {
		return err
	}
	if err := os.WriteFile(b.criuOptions(), []byte(optionsCRIU), 0o600); err != nil {
		return err
	}
	work := filepath.Join(dir, workDir)
	args := slices.Concat(r.globalArgs(), []string{
		"checkpoint", "--leave-running", "--file-locks", "--manage-cgroups-mode", "ignore",
		"--image-path", filepath.Join(dir, oci.DumpImages), "--work-path", work, b.ID(),
	})
	c := driver.Command{
		Path: path, Args: args, Env: criuEnvironment(criu), Limit: outputLimit, Started: guard.Watch,
	}
	_, stderr, err := c.Run(ctx)
	log, lerr := readTail(filepath.Join(work, oci.DumpLog))
	if err != nil {
		return dumpError(ctx, log, stderr, err)
	}
	return errors.Join(lerr, guard.Watch(0),
		os.Rename(filepath.Join(work, oci.DumpLog), filepath.Join(dir, oci.DumpLog)),
		os.Rename(filepath.Join(work, oci.DumpStats), filepath.Join(dir, oci.DumpStats)), os.RemoveAll(work))
}

// criuEnvironment is the environment of a runtime that runs this CRIU: runtimes look for it in PATH.
func criuEnvironment(criu string) []string {
	path := "PATH=" + filepath.Dir(criu)
	if rest := os.Getenv("PATH"); rest != "" {
		path += ":" + rest
	}
	return append(driver.Environment(), path) // of two entries the last one counts, see exec.Cmd
}

// readTail returns the end of a log.
func readTail(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > outputLimit {
		_, _ = f.Seek(-outputLimit, io.SeekEnd)
	}
	data, err := io.ReadAll(io.LimitReader(f, outputLimit))
	return string(data), err
}

// dumpError returns why CRIU has failed. Its log has names of the container's files.
func dumpError(ctx context.Context, log string, stderr []byte, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("checkpoint: %w", context.Cause(ctx))
	}
	var lines []string
	for line := range strings.Lines(log) {
		if _, text, ok := strings.Cut(line, "Error ("); ok && !strings.Contains(line, "RLIMIT_NOFILE") {
			_, text, _ = strings.Cut(text, "): ")
			lines = append(lines, strings.TrimSpace(text))
		}
	}
	const most = 4 // later ones follow from these
	text := strings.Join(lines[:min(len(lines), most)], "; ")
	if text == "" {
		text = driver.Complaint(stderr)
	}
	text = fmt.Sprintf("%.1000q", text)
	if strings.Contains(log, "No space left on device") {
		return fmt.Errorf("%w: no space left for the images of CRIU", errdefs.ErrResourceExhausted)
	}
	return fmt.Errorf("%w: CRIU cannot checkpoint the container: %s (%w)", errdefs.ErrFailedPrecondition, text, err)
}

// thawContainer returns when the container runs.
func thawContainer(rec record) error {
	ctx, cancel := context.WithTimeout(context.Background(), thawTimeout)
	defer cancel()
	return rec.Cgroups.ThawAll(ctx)
}

// Thaw implements oci.Dumper.
func (r *Runtime) Thaw(_ context.Context, id string) error {
	b, err := r.bundle(id)
	if err != nil {
		return err
	}
	rec, err := b.load()
	if errdefs.IsNotFound(err) || err == nil && rec.Init == (process.Process{}) {
		return nil
	}
	if err != nil {
		return err
	}
	return thawContainer(rec)
}

// awaitDump waits until the container is not being saved.
func (r *Runtime) awaitDump(ctx context.Context, id string) error {
	unlock, err := r.dumps.Lock(ctx, id)
	if err != nil {
		return fmt.Errorf("wait for the checkpoint of the container: %w", err)
	}
	unlock()
	return nil
}
