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

	"github.com/containerd/errdefs"
	"github.com/moby/sys/mountinfo"
	"github.com/opencontainers/selinux/go-selinux/label"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/podd-project/podd/oci/spec"
)

// Resolver looks at the host paths of mounts. A look at a path on a dead network filesystem never returns and cannot
// be interrupted, so each is given to a goroutine that is left behind when its caller's context ends. The number left
// behind is bounded: with all places taken, further looks wait for one, as long as their context allows. One path takes
// one place: while a look at it is left behind, others fail at once, so that a pod that is tried again and again on
// its dead volume does not take the places of all.
type Resolver struct {
	places chan struct{}
	mu     sync.Mutex
	hung   map[string]bool // paths at which looks were left behind
	look   func(path string) (real string, isDir bool, err error)
	mounts func(path string) ([]*mountinfo.Info, error)
}

// NewResolver returns a resolver that leaves at most stuck goroutines (each with a kernel thread) behind.
func NewResolver(stuck int) *Resolver {
	return &Resolver{places: make(chan struct{}, stuck), hung: map[string]bool{}, look: look, mounts: mountsAbove}
}

// Mounts resolves a container's mounts, in order. images holds the paths of mounted image volumes by index.
//
// A host path must exist and symbolic links in it are followed, as the CRI says; an image's sub path is resolved
// beneath the image. Propagation that the source's own mount cannot give is an error. Errors wrap ErrNotFound (the
// path is not there), ErrInvalidArgument, ErrFailedPrecondition (propagation), the CRI's ErrImageVolumeMountFailed,
// or the context's cause with the path that did not answer.
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

// Relabel gives the sources of mounts that ask for it the container's SELinux mount label, recursively. It does
// nothing without a label. Filesystems without labels are left alone.
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

// within runs f on a goroutine and leaves it behind when ctx ends. f asks at, before it goes on to a path.
func within[T any](ctx context.Context, r *Resolver, f func(at func(path string) error) (T, error)) (T, error) {
	var none T
	select {
	case r.places <- struct{}{}:
	case <-ctx.Done():
		return none, fmt.Errorf("%d lookups of host paths do not answer: %w", cap(r.places), context.Cause(ctx))
	}
	type result struct {
		value T
		err   error
	}
	l := &lookup{r: r, ctx: ctx}
	done := make(chan result, 1) // nobody may be left to receive
	go func() {
		defer func() { <-r.places }()
		defer l.end()
		v, err := f(l.at)
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return none, fmt.Errorf("the host's %s does not answer: %w", l.leave(), context.Cause(ctx))
	}
}

// lookup is one run of within. Its fields are guarded by r.mu.
type lookup struct {
	r    *Resolver
	ctx  context.Context
	path string // where it is
	left bool   // behind, at path
	over bool
}

// at notes that the lookup goes on to path, unless another one hangs there or its caller has gone.
func (l *lookup) at(path string) error {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	if err := l.ctx.Err(); err != nil {
		return context.Cause(l.ctx)
	}
	if l.r.hung[path] {
		return fmt.Errorf("%w: the host's %s has not answered an earlier container yet", errdefs.ErrUnavailable, path)
	}
	l.path = path
	return nil
}

// leave leaves the lookup behind and says where.
func (l *lookup) leave() string {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	if !l.over && l.path != "" {
		l.left, l.r.hung[l.path] = true, true
	}
	return cmp.Or(l.path, "path")
}

func (l *lookup) end() {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	l.over = true
	if l.left {
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
	if errors.Is(err, fs.ErrNotExist) {
		return out, fmt.Errorf("%w: host path %q does not exist", errdefs.ErrNotFound, path)
	}
	if err != nil {
		return out, fmt.Errorf("host path: %w", err)
	}
	return out, r.checkPropagation(m.GetPropagation(), out.Source)
}

// look follows symbolic links: "If the hostpath is a symbolic link, runtimes should follow the symlink and mount the
// real destination to container."
func look(path string) (string, bool, error) {
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

// imageMount resolves the sub path of an image volume (KEP-4639) beneath the image, which its author filled.
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
	real, isDir, err := beneath(image, sub)
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

// beneath returns the real path of sub in root. The image is mounted read-only, so that the path stays what it is.
func beneath(root, sub string) (string, bool, error) {
	top, err := filepath.EvalSymlinks(root)
	if err != nil {
		return "", false, err
	}
	if sub == "" {
		sub = "/"
	}
	f, err := inRoot(top, sub)
	if err != nil {
		return "", false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", false, err
	}
	real, err := os.Readlink(descriptor(f))
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

// checkPropagation: the kernel would let such a mount be made and then nothing propagate.
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

// nearest returns the mount with the longest mount point, the last of equal ones, which is on top.
func nearest(mounts []*mountinfo.Info) *mountinfo.Info {
	var best *mountinfo.Info
	for _, m := range mounts {
		if best == nil || len(m.Mountpoint) >= len(best.Mountpoint) {
			best = m
		}
	}
	return best
}
