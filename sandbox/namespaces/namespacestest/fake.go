package namespacestest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/sandbox/namespaces"
)

// Fake pins namespaces in memory: its pin files are real, and nothing is mounted on them. It outlives the engine that
// uses it, as mounts outlive the daemon: a restarted engine is given a Reopen of it. It sets no hostname and no sysctl.
type Fake struct {
	// Before, if set, is called at the start of pin, unpin and sysctl, with that word and the path of a pin file ("" if
	// there is none); After when the call has succeeded. An error replaces the call's own result, so Before fails a
	// call without its effect and After with it. Both are called without locks and may block or end their goroutine.
	// Set them before the Fake is used.
	Before, After func(ctx context.Context, verb, path string) error

	*fakeState
}

// fakeState is shared by all Fakes that Reopen returns.
type fakeState struct {
	mu     sync.Mutex
	pinned map[string]bool // mounts, by path
}

// NewFake returns a Fake that has pinned nothing.
func NewFake() *Fake { return &Fake{fakeState: &fakeState{pinned: map[string]bool{}}} }

// Reopen returns a Fake with the same pinned namespaces and without hooks.
func (f *Fake) Reopen() *Fake { return &Fake{fakeState: f.fakeState} }

// hooked runs one verb between the hooks, with the lock held.
func (f *Fake) hooked(ctx context.Context, verb, path string, act func() error) error {
	if f.Before != nil {
		if err := f.Before(ctx, verb, path); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	err := func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		return act()
	}()
	if err != nil || f.After == nil {
		return err
	}
	return f.After(ctx, verb, path)
}

// Pin makes the pin files of r: all, or with an error none.
func (f *Fake) Pin(ctx context.Context, r namespaces.Request) error {
	if err := r.Validate(); err != nil {
		return err
	}
	paths := slices.DeleteFunc([]string{r.User, r.Net, r.IPC, r.UTS}, func(path string) bool { return path == "" })
	return f.hooked(ctx, "pin", first(paths), func() error {
		if err := f.unpin(paths); err != nil {
			return err
		}
		if r.Claim != "" {
			if err := r.WriteClaim(); err != nil {
				return err
			}
		}
		for _, path := range paths {
			if err := createPinFile(path); err != nil {
				return errors.Join(err, f.unpin(paths))
			}
			f.pinned[path] = true
		}
		return nil
	})
}

func createPinFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return file.Close()
}

// Unpin removes pin files; absent ones are not an error.
func (f *Fake) Unpin(ctx context.Context, paths ...string) error {
	return f.hooked(ctx, "unpin", first(paths), func() error { return f.unpin(paths) })
}

func (f *Fake) unpin(paths []string) error {
	var errs []error
	for _, path := range paths {
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrInvalid):
			delete(f.pinned, path)
		case err != nil:
			errs = append(errs, err)
		case !info.Mode().IsRegular() || info.Size() != 0:
			errs = append(errs, fmt.Errorf("%w: %s is not a pin file", errdefs.ErrFailedPrecondition, path))
		default:
			delete(f.pinned, path)
			errs = append(errs, os.Remove(path))
		}
	}
	return errors.Join(errs...)
}

// Lost returns the kind of a namespace of r that is not pinned any longer.
func (f *Fake) Lost(r namespaces.Request) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range [][2]string{{"user", r.User}, {"net", r.Net}, {"ipc", r.IPC}, {"uts", r.UTS}} {
		if _, err := os.Lstat(k[1]); k[1] != "" && (err != nil || !f.pinned[k[1]]) {
			return k[0]
		}
	}
	return ""
}

// Unmount is what umount does to a pin: the file is left.
func (f *Fake) Unmount(path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.pinned, path)
	return nil
}

// Pinned lists the pin files in dir, sorted.
func (f *Fake) Pinned(dir string) ([]string, error) { return namespaces.New("").Pinned(dir) }

// Sysctl changes nothing. It fails if there is something to set and no namespace pinned at netns.
func (f *Fake) Sysctl(ctx context.Context, netns string, sysctls map[string]string) error {
	return f.hooked(ctx, "sysctl", netns, func() error {
		if len(sysctls) > 0 && !f.pinned[netns] {
			return fmt.Errorf("no namespace is pinned at %s: %w", netns, fs.ErrNotExist)
		}
		return nil
	})
}

// Mounted returns the paths at which a namespace is pinned, sorted: none if nothing leaked. A pin file that was deleted
// without Unpin is among them.
func (f *Fake) Mounted() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.pinned))
}

// Reboot forgets all mounts, as a reboot of the node does. The caller removes the pin files, which are in /run.
func (f *Fake) Reboot() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.pinned)
}

func first(paths []string) string {
	if len(paths) == 0 {
		return ""
	}
	return paths[0]
}
