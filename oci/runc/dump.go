package runc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/process"
	"github.com/podd-project/podd/oci/runc/criu"
	"github.com/podd-project/podd/oci/runc/thaw"
	"github.com/podd-project/podd/oci/space"
	"github.com/podd-project/podd/oci/subprocess"
)

var _ oci.Dumper = (*Runtime)(nil)

const (
	// thawTimeout bounds how long Dump tries to thaw a container.
	thawTimeout = 10 * time.Second
	// patienceCRIU is how long CRIU may take after the deadline. At first it makes processes execute its own code:
	// after two of about 80 kills within a quarter of a second the container did not run on.
	patienceCRIU = 2 * time.Second
	// startingCommand bounds the time from the start of a container until its command runs, hooks included.
	startingCommand = 10 * time.Second
)

// dump is the checkpoint of some containers.
type dump struct {
	r          *Runtime
	criu       string // path
	containers []dumpedContainer
	unlocks    []func()
}

type dumpedContainer struct {
	bundle  bundle
	cgroups cgroups.Dirs
	dir     string
}

// Dump implements oci.Dumper, with runc and CRIU. It is enough to freeze one container after the other before the first
// is saved: one that waits for the others to be frozen is like one that does not get the processor.
func (r *Runtime) Dump(ctx context.Context, containers []oci.Dumped, frozen func(context.Context) error) (err error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return fmt.Errorf("%w: a checkpoint needs a deadline", errdefs.ErrInvalidArgument)
	}
	d, err := r.newDump(ctx, containers)
	defer d.unlock()
	if err != nil {
		return err
	}
	guard, err := thaw.Start(r.cfg.Thaw, time.Until(deadline)+patienceCRIU, d.thawing())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		<-guard.Done
		cancel(fmt.Errorf("%w: the container was thawed before it was saved", context.DeadlineExceeded))
	}()
	defer func() { err = errors.Join(err, guard.Close(), d.thaw()) }()
	if err := d.save(ctx, guard); err != nil {
		return err
	}
	return errors.Join(frozen(ctx), context.Cause(ctx))
}

// newDump locks the containers, which the caller unlocks in any case, and checks that they can be saved.
func (r *Runtime) newDump(ctx context.Context, containers []oci.Dumped) (dump, error) {
	d := dump{r: r}
	if !strings.HasPrefix(r.Features().Version, "runc ") {
		return d, fmt.Errorf("%w: %s", errdefs.ErrNotImplemented, r.Features().Checkpoints.NoContainers)
	}
	if r.cfg.Thaw == "" {
		return d, fmt.Errorf("%w: podd was built without the program that thaws containers: run make embedded",
			errdefs.ErrNotImplemented)
	}
	var err error
	if d.criu, err = r.lookupCRIU(ctx); err != nil {
		return d, err
	}
	for _, c := range containers {
		if err := d.add(ctx, c); err != nil {
			return d, err
		}
	}
	return d, d.reserve(containers)
}

// dumping is the space that the dumps of all runtimes need now.
var dumping space.Promised

// reserve checks that the memory of the containers fits where it is written, and where the caller puts it then.
func (d *dump) reserve(containers []oci.Dumped) error {
	var all uint64
	for i, c := range containers {
		memory := d.containers[i].cgroups.AnonymousMemory()
		if all += memory; c.Room > 0 && all > uint64(c.Room) {
			return fmt.Errorf("%w: a checkpoint of %d bytes needs twice as much free space, its destination has %d",
				errdefs.ErrResourceExhausted, all, 2*c.Room)
		}
		done, err := dumping.Reserve(c.Dir, memory)
		if err != nil {
			return err
		}
		d.unlocks = append(d.unlocks, done)
	}
	return nil
}

// add locks a container and checks that it can be saved.
func (d *dump) add(ctx context.Context, c oci.Dumped) error {
	b, err := d.r.bundle(c.ID)
	if err != nil {
		return err
	}
	unlock, err := d.r.dumps.Lock(ctx, c.ID)
	if err != nil {
		return err
	}
	d.unlocks = append(d.unlocks, unlock)
	rec, err := checkRunning(b)
	if err != nil {
		return err
	}
	d.containers = append(d.containers, dumpedContainer{b, rec.Cgroups, c.Dir})
	return awaitCommand(ctx, rec.Init)
}

// awaitCommand waits until the first process of a container that was started a moment ago runs the container's command.
// Until then it is runc, whose executable CRIU finds in no mount of the container. A command that takes runc's name
// delays the checkpoint of its container or pod by startingCommand, and fails it.
func awaitCommand(ctx context.Context, init process.Process) error {
	ctx, cancel := context.WithTimeout(ctx, startingCommand)
	defer cancel()
	err := process.Poll(ctx, func() bool {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", init.Pid))
		return strings.TrimSpace(string(name)) != "runc:[2:INIT]"
	})
	if err != nil {
		return fmt.Errorf("%w: the container's command does not run yet: try again later", errdefs.ErrFailedPrecondition)
	}
	return nil
}

func (d *dump) unlock() {
	for _, unlock := range d.unlocks {
		unlock()
	}
}

// save freezes all containers, then saves one after the other.
func (d *dump) save(ctx context.Context, guard *thaw.Guard) error {
	for _, c := range d.containers {
		if err := c.cgroups.Freeze(ctx); err != nil {
			return err
		}
	}
	for _, c := range d.containers {
		if err := d.runCRIU(ctx, c, guard); err != nil {
			return err
		}
		if err := d.checkIPC(c); err != nil {
			return err
		}
	}
	return nil
}

// checkIPC refuses objects that could not be restored: each container's images have the pod's objects of System V, and
// only the first one could create them.
func (d *dump) checkIPC(c dumpedContainer) error {
	has, err := criu.HasIPC(filepath.Join(c.dir, oci.DumpImages))
	if err != nil || !has || len(d.containers) == 1 {
		return err
	}
	return fmt.Errorf("%w: %s", errdefs.ErrFailedPrecondition, severalIPC)
}

// severalIPC is why a pod of several containers cannot be saved.
const severalIPC = "the pod has shared memory, semaphores or message queues of System V, which are saved for one " +
	"container only"

// thawing returns the values that thaw the containers, by file.
func (d *dump) thawing() map[string]string {
	files := map[string]string{}
	for _, c := range d.containers {
		maps.Copy(files, c.cgroups.Thawing())
	}
	return files
}

// thaw returns when the containers run.
func (d *dump) thaw() error {
	var errs []error
	for _, c := range d.containers {
		errs = append(errs, thawContainer(c.cgroups))
	}
	return errors.Join(errs...)
}

// runCRIU has the runtime save a frozen container. The guard kills both if podd does not.
func (d *dump) runCRIU(ctx context.Context, c dumpedContainer, guard *thaw.Guard) error {
	path, err := d.r.lookup(d.r.cfg.Path)
	if err != nil {
		return err
	}
	if err := c.bundle.writeCRIUOptions(); err != nil {
		return err
	}
	work := filepath.Join(c.dir, workDir)
	args := slices.Concat(d.r.globalArgs(), []string{
		"checkpoint", "--leave-running", "--file-locks", "--manage-cgroups-mode", "ignore",
		"--image-path", filepath.Join(c.dir, oci.DumpImages), "--work-path", work, c.bundle.ID(),
	})
	cmd := exec.Command(path, args...)
	cmd.Env = criuEnvironment(d.criu)
	patient, cancel := outlive(ctx, patienceCRIU)
	defer cancel()
	_, stderr, err := subprocess.RunWatched(patient, cmd, outputLimit, guard.Watch)
	log, lerr := readTail(filepath.Join(work, oci.DumpLog))
	if err != nil {
		return dumpError(ctx, log, stderr, err)
	}
	return errors.Join(lerr, guard.Watch(0),
		os.Rename(filepath.Join(work, oci.DumpLog), filepath.Join(c.dir, oci.DumpLog)),
		os.Rename(filepath.Join(work, oci.DumpStats), filepath.Join(c.dir, oci.DumpStats)), os.RemoveAll(work))
}

// outlive returns a context that ends some time after ctx.
func outlive(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	later, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(by, cancel) })
	return later, func() { stop(); cancel() }
}

// dumpError returns why CRIU has failed. Its log has names of the container's files.
func dumpError(ctx context.Context, log string, stderr []byte, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("checkpoint: %w", context.Cause(ctx))
	}
	text := criuErrors(log)
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
func thawContainer(dirs cgroups.Dirs) error {
	ctx, cancel := context.WithTimeout(context.Background(), thawTimeout)
	defer cancel()
	return dirs.ThawAll(ctx)
}

// Thaw implements oci.Dumper. It waits for the program that guards a checkpoint after podd was killed: the runtime and
// CRIU may go on for two seconds, and freeze the container again.
func (r *Runtime) Thaw(_ context.Context, id string) error {
	_, rec, err := r.open(id)
	if errdefs.IsNotFound(err) || err == nil && rec.Init == (process.Process{}) {
		return nil
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), thawTimeout)
	defer cancel()
	return errors.Join(thaw.Await(ctx, rec.Cgroups.Thawing()), thawContainer(rec.Cgroups))
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
