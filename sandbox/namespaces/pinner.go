package namespaces

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/thread"
)

// Pinner creates and pins namespaces. Its methods may be called at the same time for different pin files.
type Pinner struct {
	holder string
	userMu sync.Mutex // held while a thread has another effective user, see asOwner
}

// New returns a Pinner. holder is the path of a static program that only waits (podd's pause). It is started, and
// killed at once, for pods with a user namespace; without such pods it may be empty.
func New(holder string) *Pinner { return &Pinner{holder: holder} }

// kind is one type of namespace and the pin file it gets.
type kind struct {
	name string // of the file in /proc/<pid>/ns
	flag int
	path string
}

// kinds lists the requested namespaces, the user namespace first because it owns the others.
func (r Request) kinds() []kind {
	all := []kind{
		{"user", unix.CLONE_NEWUSER, r.User},
		{"net", unix.CLONE_NEWNET, r.Net},
		{"ipc", unix.CLONE_NEWIPC, r.IPC},
		{"uts", unix.CLONE_NEWUTS, r.UTS},
	}
	var wanted []kind
	for _, k := range all {
		if k.path != "" {
			wanted = append(wanted, k)
		}
	}
	return wanted
}

func flags(kinds []kind) (f int) {
	for _, k := range kinds {
		f |= k.flag
	}
	return f
}

// Pin creates the namespaces of r, pins them, and sets the hostname and the sysctls in them. On error it undoes its
// changes. Existing pin files are leftovers of a crash; they are unpinned first. A request without namespaces is only
// validated.
//
// Errors: errdefs.ErrInvalidArgument for a request that can never succeed; nothing has been changed then.
func (p *Pinner) Pin(ctx context.Context, r Request) error {
	if err := r.Validate(); err != nil {
		return err
	}
	kinds := r.kinds()
	if len(kinds) == 0 {
		return ctx.Err()
	}
	paths := make([]string, len(kinds))
	for i, k := range kinds {
		paths[i] = k.path
	}
	if err := p.Unpin(ctx, paths...); err != nil {
		return fmt.Errorf("remove leftover pins: %w", err)
	}
	if err := p.pin(ctx, r, kinds); err != nil {
		return errors.Join(fmt.Errorf("pin namespaces: %w", err), p.Unpin(context.WithoutCancel(ctx), paths...))
	}
	return nil
}

// pin is Pin without the undo.
func (p *Pinner) pin(ctx context.Context, r Request, kinds []kind) error {
	if r.Claim != "" {
		if err := errors.Join(r.WriteClaim(), shareDir(ctx, filepath.Dir(r.Net))); err != nil {
			return err
		}
	}
	for _, k := range kinds {
		if err := createPinFile(k.path); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.User != "" {
		return p.pinInUserNamespace(ctx, r, kinds)
	}
	return thread.Run(func() error {
		if err := unix.Unshare(flags(kinds)); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		if err := bindAll("/proc/thread-self/ns", kinds); err != nil {
			return err
		}
		return p.configure(ctx, r)
	})
}

// createPinFile creates the empty file that a namespace is mounted on.
func createPinFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("create pin directory: %w", err)
	}
	// O_EXCL also refuses a symbolic link.
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("create pin file: %w", err)
	}
	return f.Close()
}

// bindAll mounts the namespaces in dir, a /proc/.../ns directory, on their pin files.
func bindAll(dir string, kinds []kind) error {
	for _, k := range kinds {
		if err := unix.Mount(filepath.Join(dir, k.name), k.path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s namespace on %s: %w", k.name, k.path, err)
		}
	}
	return nil
}

// configure sets the hostname and the sysctls. It runs on a thread that is in the namespaces of r.
func (p *Pinner) configure(ctx context.Context, r Request) error {
	if r.UTS != "" && r.Hostname != "" {
		if err := unix.Sethostname([]byte(r.Hostname)); err != nil {
			return fmt.Errorf("set hostname: %w", err)
		}
	}
	return p.writeSysctls(ctx, r)
}
