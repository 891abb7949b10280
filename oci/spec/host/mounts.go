package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/sys/mountinfo"
	"github.com/opencontainers/selinux/go-selinux/label"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/podd-project/podd/oci/openat"
	"github.com/podd-project/podd/oci/spec"
)

// Resolver looks up the host paths of mounts. A lookup on a dead network filesystem never returns and cannot be
// interrupted, so each runs in a goroutine that is abandoned when its caller's context ends. The number of goroutines
// is bounded: if all slots are in use, further lookups wait for one until their context ends. A path uses at most one
// slot: while a lookup of it hangs, others fail at once, so that a pod that is retried on its dead volume does not use
// up the slots of all.
type Resolver struct {
	slots  chan struct{}
	mu     sync.Mutex
	hung   map[string]bool // paths of abandoned lookups
	create bool
	look   func(path string) (real string, isDir bool, err error)
	mounts func(path string) ([]*mountinfo.Info, error)
}

// NewResolver returns a Resolver with at most stuck hanging lookups, each of which occupies a kernel thread. If create
// is set, missing host paths are created as directories.
func NewResolver(stuck int, create bool) *Resolver {
	return &Resolver{
		slots: make(chan struct{}, stuck), hung: map[string]bool{}, create: create, look: lookupPath, mounts: mountsAbove,
	}
}

// Mounts resolves a container's mounts, in order. images holds the paths of mounted image volumes by index.
//
// Symbolic links in a host path are followed, as the CRI says. A missing one is created as a directory, and stays, or
// is an error, see NewResolver. An image's sub path is resolved in the image. Propagation that the mount of the source
// does not support is an error. Errors wrap ErrNotFound (no such path, or it cannot be created), ErrInvalidArgument,
// ErrFailedPrecondition (propagation), the CRI's ErrImageVolumeMountFailed, or the context's cause and name the path
// that hangs.
func (r *Resolver) Mounts(ctx context.Context, mounts []*cri.Mount, images map[int]string) ([]spec.Mount, error) {
	return within(ctx, r, func(at func(path string) error) ([]spec.Mount, error) {
		var out []spec.Mount
		for i, m := range mounts {
			if err := at(m.GetHostPath() + m.GetImage().GetImage()); err != nil {
				return nil, err
			}
			resolved, err := r.resolve(m, images[i])
			if err != nil {
				return nil, fmt.Errorf("mount %q: %w", m.GetContainerPath(), err)
			}
			out = append(out, resolved)
		}
		return out, nil
	})
}

// Relabel sets the container's SELinux mount label, recursively, on the sources of mounts that request it. Without a
// label it does nothing. Filesystems without labels are skipped.
func (r *Resolver) Relabel(ctx context.Context, mounts []spec.Mount, mountLabel string) error {
	if mountLabel == "" {
		return nil
	}
	_, err := within(ctx, r, func(at func(path string) error) (struct{}, error) {
		for _, m := range mounts {
			if !m.Config.GetSelinuxRelabel() || m.Config.GetImage() != nil {
				continue
			}
			if err := at(m.Source); err != nil {
				return struct{}{}, err
			}
			if err := label.Relabel(m.Source, mountLabel, false); err != nil && !errors.Is(err, errors.ErrUnsupported) {
				return struct{}{}, fmt.Errorf("relabel %s: %w", m.Source, err)
			}
		}
		return struct{}{}, nil
	})
	return err
}

// answerTimeout is how long a filesystem may take to say how full it is.
const answerTimeout = 20 * time.Second

// Answers returns an error if the filesystem of path does not answer within answerTimeout, or until ctx ends, as one
// whose server is dead. Other problems with the path are ignored here.
func (r *Resolver) Answers(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	_, err := within(ctx, r, func(at func(path string) error) (struct{}, error) {
		if err := at(path); err != nil {
			return struct{}{}, err
		}
		_ = unix.Statfs(path, new(unix.Statfs_t)) // only whether it returns matters
		return struct{}{}, nil
	})
	return err
}

// within runs f on a goroutine, which it abandons when ctx ends. f must call at before it accesses a path.
func within[T any](ctx context.Context, r *Resolver, f func(at func(path string) error) (T, error)) (T, error) {
	var none T
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return none, fmt.Errorf("%d lookups of host paths hang: %w", cap(r.slots), context.Cause(ctx))
	}
	type result struct {
		value T
		err   error
	}
	l := &lookup{r: r, ctx: ctx}
	done := make(chan result, 1) // the receiver may have returned
	go func() {
		defer func() { <-r.slots }()
		defer l.end()
		v, err := f(l.at)
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return none, fmt.Errorf("lookup of %s on the host hangs: %w", l.abandon(), context.Cause(ctx))
	}
}

// lookup is one run of within. Its fields are guarded by r.mu.
type lookup struct {
	r    *Resolver
	ctx  context.Context
	path string // being accessed

	abandoned, done bool
}

// at records that the lookup accesses path next. It is an error if another lookup of path hangs or the caller has
// returned.
func (l *lookup) at(path string) error {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	if err := l.ctx.Err(); err != nil {
		return context.Cause(l.ctx)
	}
	if l.r.hung[path] {
		return fmt.Errorf("%w: an earlier lookup of %s on the host still hangs", errdefs.ErrUnavailable, path)
	}
	l.path = path
	return nil
}

// abandon abandons the lookup and returns the path that it hangs at.
func (l *lookup) abandon() string {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	if !l.done && l.path != "" {
		l.abandoned, l.r.hung[l.path] = true, true
	}
	return cmp.Or(l.path, "path")
}

func (l *lookup) end() {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	l.done = true
	if l.abandoned {
		delete(l.r.hung, l.path)
	}
}

func (r *Resolver) resolve(m *cri.Mount, image string) (spec.Mount, error) {
	out := spec.Mount{Config: m}
	if m.GetImage() != nil {
		return imageMount(out, image)
	}
	path := m.GetHostPath()
	if !filepath.IsAbs(path) || strings.Contains(path, "\x00") {
		return out, invalid("host path %q is not an absolute path", path)
	}
	var err error
	out.Source, out.IsDir, err = r.look(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && r.create:
		out.IsDir = true
		if out.Source, err = makeHostDir(path); err != nil {
			return out, err
		}
	case errors.Is(err, fs.ErrNotExist):
		return out, fmt.Errorf("%w: host path %q does not exist", errdefs.ErrNotFound, path)
	case err != nil:
		return out, fmt.Errorf("host path: %w", err)
	}
	return out, r.checkPropagation(m.GetPropagation(), out.Source)
}

// lookupPath follows symbolic links. CRI: "If the hostpath is a symbolic link, runtimes should follow the symlink and
// mount the real destination to container."
func lookupPath(path string) (string, bool, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", false, err
	}
	info, err := os.Stat(real)
	if err != nil {
		return "", false, err
	}
	return real, info.IsDir(), nil
}

// imageMount resolves the sub path of an image volume (KEP-4639) in the image, which is hostile.
func imageMount(m spec.Mount, image string) (spec.Mount, error) {
	if m.Config.GetHostPath() != "" {
		return m, invalid("both an image and the host path %q are given", m.Config.GetHostPath())
	}
	if image == "" {
		return m, fmt.Errorf(
			"%w: image %q is not mounted", crierrors.ErrImageVolumeMountFailed, m.Config.GetImage().GetImage(),
		)
	}
	sub := m.Config.GetImageSubPath()
	if slices.Contains(strings.Split(sub, "/"), "..") || strings.Contains(sub, "\x00") {
		return m, invalid("image sub path %q leaves the image", sub)
	}
	real, isDir, err := realPathIn(image, sub)
	if errors.Is(err, fs.ErrNotExist) {
		return m, fmt.Errorf(
			"%w: %w: the image has no path %q", crierrors.ErrImageVolumeMountFailed, errdefs.ErrNotFound, sub,
		)
	}
	if err != nil {
		return m, fmt.Errorf("%w: image sub path %q: %w", crierrors.ErrImageVolumeMountFailed, sub, err)
	}
	m.Source, m.IsDir = real, isDir
	return m, nil
}

// realPathIn returns the real path of sub in root. The image is mounted read-only, so the result remains valid.
func realPathIn(root, sub string) (string, bool, error) {
	top, err := filepath.EvalSymlinks(root)
	if err != nil {
		return "", false, err
	}
	if sub == "" {
		sub = "/"
	}
	f, err := openInRoot(top, sub)
	if err != nil {
		return "", false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", false, err
	}
	real, err := os.Readlink(openat.Path(f))
	if err != nil {
		return "", false, err
	}
	if real != top && !strings.HasPrefix(real, strings.TrimSuffix(top, "/")+"/") {
		return "", false, fmt.Errorf("%q resolves to %q, outside of the image", sub, real)
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return "", false, invalid("%q is neither a file nor a directory", sub)
	}
	return real, info.IsDir(), nil
}

// checkPropagation refuses propagation that the mount of the source does not support: the kernel would accept the mount
// without propagating anything.
func (r *Resolver) checkPropagation(p cri.MountPropagation, source string) error {
	if p == cri.MountPropagation_PROPAGATION_PRIVATE {
		return nil
	}
	above, err := r.mounts(source)
	if err != nil {
		return fmt.Errorf("read mountinfo: %w", err)
	}
	m := nearest(above)
	if m == nil {
		return unsupported("no mount holds %s", source)
	}
	shared, slave := peer(m.Optional, "shared:"), peer(m.Optional, "master:")
	switch {
	case shared, slave && p == cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER:
		return nil
	case p == cri.MountPropagation_PROPAGATION_BIDIRECTIONAL:
		return unsupported(
			"%s is on the mount %s, which is not shared: bidirectional propagation is impossible", source, m.Mountpoint,
		)
	}
	return unsupported(
		"%s is on the mount %s, which is neither shared nor a slave: no mount on the host would propagate", source,
		m.Mountpoint,
	)
}

func peer(optional, kind string) bool {
	return slices.ContainsFunc(strings.Fields(optional), func(o string) bool { return strings.HasPrefix(o, kind) })
}

func mountsAbove(path string) ([]*mountinfo.Info, error) {
	return mountinfo.GetMounts(mountinfo.ParentsFilter(path))
}

// nearest returns the mount with the longest mount point, of several the last, which is on top.
func nearest(mounts []*mountinfo.Info) *mountinfo.Info {
	var best *mountinfo.Info
	for _, m := range mounts {
		if best == nil || len(m.Mountpoint) >= len(best.Mountpoint) {
			best = m
		}
	}
	return best
}
