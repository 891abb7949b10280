package runc

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/podd-project/podd/oci/runc/starter"
)

// The first process of a container of runc or crun waits on a FIFO in the runtime's state. All that `<runtime> start`
// does for most containers is to release it and to remove the FIFO, which the starter does in a tenth of the time. The
// FIFO is not an interface of the runtimes, so it is used with releases whose source has been read only.

// startMethod returns how the starter can start the new container, "" if only the runtime can. crun's start also runs
// poststart hooks.
func (r *Runtime) startMethod(c loadedConfig) starter.Method {
	if r.cfg.Starter == "" || len(c.Hooks.Poststart) > 0 {
		return ""
	}
	return r.knownMethod()
}

// knownMethod returns how the starter releases a process of the runtime, "" if its source has not been read.
func (r *Runtime) knownMethod() starter.Method {
	version := r.Features().Version
	switch {
	case isRead(version, "runc version ", readRunc()):
		return starter.Read
	case isRead(version, "crun version ", readCrun()):
		return starter.Write
	}
	return ""
}

// readRunc lists the releases of runc whose source of start and delete has been read: the newest one of each minor
// version stands for all patch releases up to it.
func readRunc() []string { return []string{"1.1.15", "1.2.9", "1.3.7", "1.4.4", "1.5.3"} }

// readCrun is the same for crun.
func readCrun() []string {
	return []string{
		"1.8.7", "1.9.2", "1.10", "1.11.2", "1.12", "1.13", "1.14.4", "1.15", "1.16.1", "1.17", "1.18.2", "1.19.1", "1.20",
		"1.21", "1.22", "1.23.1", "1.24", "1.25.1", "1.26", "1.27.1", "1.28", "1.29.1",
	}
}

// release matches the version of a release, with a suffix that a distribution may have added. Versions of candidates
// and of commits between releases, such as 1.2.0-rc.1, 1.5.0+dev and 1.8.1.0.0.0.12-3856, do not match.
var release = regexp.MustCompile(`^(\d+)\.(\d+)(?:\.(\d+))?(?:[+~-](?:ds)?\d{1,3}(?:\D.*)?)?$`)

// commit matches the version of a commit after a release, as in 1.5.0-3-g0123abc.
var commit = regexp.MustCompile(`[.-]g[0-9a-f]+`)

// isRead reports whether a version is of a release in the list.
func isRead(version, prefix string, list []string) bool {
	number, ok := strings.CutPrefix(version, prefix)
	if !ok || !release.MatchString(number) || commit.MatchString(number) {
		return false
	}
	have := versionNumbers(number)
	return slices.ContainsFunc(list, func(newest string) bool {
		most := versionNumbers(newest)
		return have[0] == most[0] && have[1] == most[1] && have[2] <= most[2]
	})
}

// fifo is where the first process of the container waits.
func (r *Runtime) fifo(b bundle) string { return filepath.Join(r.cfg.Root, b.ID(), "exec.fifo") }

// waits reports whether the container waits for its start. The error is starter.ErrNoFIFO if only the runtime can tell.
//
// The FIFO is still there, and the runtime says that the container waits, if a starter was killed after it had released
// the container. Then waits removes it.
func (r *Runtime) waits(b bundle, rec record) (bool, error) {
	if rec.Start == "" {
		return false, starter.ErrNoFIFO
	}
	waits, err := starter.Waits(rec.Init, r.fifo(b))
	if err != nil || waits {
		return waits, err
	}
	if err := os.Remove(r.fifo(b)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return false, nil
}

// runStart starts the container, which the starter does if it can. It survives podd, as the runtime would.
func (r *Runtime) runStart(ctx context.Context, b bundle, rec record) error {
	waits, err := r.waits(b, rec)
	if err == nil && !waits && rec.Init.Alive() {
		return nil // it was started before
	}
	// runc refuses to start a frozen container.
	if err == nil && waits && r.cfg.Starter != "" && !b.frozen(rec) {
		err := r.runStarter(ctx, b, rec)
		var cannot *fs.PathError // the starter cannot be executed
		if !errors.As(err, &cannot) {
			return err
		}
	}
	_, err = r.runRuntime(ctx, nil, "start", b.ID())
	return err
}

// runStarter runs the starter, with the runtime's start as the command to execute if it cannot do it.
func (r *Runtime) runStarter(ctx context.Context, b bundle, rec record) error {
	path, err := r.lookup(r.cfg.Path)
	if err != nil {
		return err
	}
	start := append(r.globalArgs(), "start", b.ID())
	name := commandName(path, start)
	args := starter.Args(rec.Start, r.fifo(b), rec.Init.Pid, append([]string{path}, start...)...)
	_, err = runNamed(ctx, name, exec.Command(r.cfg.Starter, args...))
	return err
}
