package imagetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/image"
)

// Fake keeps images in memory, and makes root filesystems that are plain directories below dir. They outlive the engine
// that uses them, as mounts outlive the daemon: a restarted engine gets a Reopen of it.
type Fake struct {
	// Before, if set, is called at the start of resolve, rootfs, volume, diff and release, with that word and the
	// container's id ("" for resolve); After when the call has succeeded. An error replaces the call's own result, so
	// Before fails a call without its effect and After with it. Both are called without locks and may block or end
	// their goroutine. Set them before the Fake is used.
	Before, After func(ctx context.Context, verb, id string) error

	// Forbidden is the error of Allow by namespace.
	Forbidden map[string]error

	*fakeState
}

// fakeState is shared by all Fakes that Reopen returns.
type fakeState struct {
	dir string

	mu     sync.Mutex // guards the rest
	images []*image.Image
	files  map[string]map[string]string // by image id: path to content
	held   map[string]bool              // by container
}

// NewFake returns a Fake without images. Root filesystems are made in dir, which need not exist.
func NewFake(dir string) *Fake {
	return &Fake{fakeState: &fakeState{dir: dir, files: map[string]map[string]string{}, held: map[string]bool{}}}
}

// Reopen returns a Fake with the same images and root filesystems and without hooks, as a restarted daemon opens the
// store.
func (f *Fake) Reopen() *Fake { return &Fake{fakeState: f.fakeState} }

// hooked runs one verb between the hooks, with the lock held.
func (f *Fake) hooked(ctx context.Context, verb, id string, act func() error) error {
	if f.Before != nil {
		if err := f.Before(ctx, verb, id); err != nil {
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
	return f.After(ctx, verb, id)
}

// Add stores an image whose root filesystem has the given files (path to content). It replaces one of the same id.
func (f *Fake) Add(img image.Image, files map[string]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.images = slices.DeleteFunc(f.images, func(i *image.Image) bool { return i.ID == img.ID })
	f.images = append(f.images, &img)
	f.files[img.ID] = files
}

// ContainersWithMounts returns the containers that have something left, sorted: none after a clean teardown.
func (f *Fake) ContainersWithMounts(context.Context) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.held)), nil
}

// Resolve is like image.Store.Resolve.
func (f *Fake) Resolve(ctx context.Context, ref string) (img *image.Image, err error) {
	err = f.hooked(ctx, "resolve", "", func() (err error) {
		img, err = f.resolveLocked(ref)
		return err
	})
	return img, err
}

// Allow is like image.Store.Allow: Forbidden decides.
func (f *Fake) Allow(_ context.Context, _, namespace string) error { return f.Forbidden[namespace] }

// Diff is like image.Store.Diff, except that it writes the id.
func (f *Fake) Diff(ctx context.Context, container string, w io.Writer) error {
	return f.hooked(ctx, "diff", container, func() error {
		_, err := io.WriteString(w, container)
		return err
	})
}

// Apply is like image.Store.Apply, except that it changes nothing.
func (f *Fake) Apply(ctx context.Context, container string, layer io.Reader) error {
	return f.hooked(ctx, "apply", container, func() error {
		_, err := io.Copy(io.Discard, layer)
		return err
	})
}

func (f *Fake) resolveLocked(ref string) (*image.Image, error) {
	if ref == "" || strings.ContainsAny(ref, " \n") || ref != strings.ToLower(ref) {
		return nil, fmt.Errorf("image reference %q: %w", ref, errdefs.ErrInvalidArgument)
	}
	var byPrefix []*image.Image
	id := strings.TrimPrefix(ref, "sha256:")
	for _, img := range f.images {
		if img.ID == id || named(img, ref) {
			return img, nil
		}
		if len(id) >= 4 && strings.HasPrefix(img.ID, id) {
			byPrefix = append(byPrefix, img)
		}
	}
	switch len(byPrefix) {
	case 0:
		return nil, fmt.Errorf("image %q: %w", ref, errdefs.ErrNotFound)
	case 1:
		return byPrefix[0], nil
	}
	return nil, fmt.Errorf("image id %q is the beginning of several ids: %w", id, errdefs.ErrInvalidArgument)
}

// named reports whether ref, completed, is one of the image's names.
func named(img *image.Image, ref string) bool {
	repo, digest, byDigest := strings.Cut(ref, "@")
	tag := "latest"
	if i := strings.LastIndex(repo, ":"); i > strings.LastIndex(repo, "/") {
		repo, tag = repo[:i], repo[i+1:]
	}
	if host, _, ok := strings.Cut(repo, "/"); !ok {
		repo = "docker.io/library/" + repo
	} else if !strings.ContainsAny(host, ".:") && host != "localhost" {
		repo = "docker.io/" + repo
	}
	if byDigest {
		return slices.Contains(img.Digests, repo+"@"+digest)
	}
	return slices.Contains(img.Tags, repo+":"+tag)
}

// Rootfs is like image.Store.Rootfs.
func (f *Fake) Rootfs(ctx context.Context, r image.RootfsRequest) (path string, err error) {
	err = f.hooked(ctx, "rootfs", r.ContainerID, func() (err error) {
		path, err = f.mount(r.ContainerID, "root", r.ImageID, owner(r.UIDs))
		return err
	})
	return path, err
}

// Volume is like image.Store.Volume; the directory is not read-only.
func (f *Fake) Volume(ctx context.Context, r image.VolumeRequest) (path string, err error) {
	err = f.hooked(ctx, "volume", r.ContainerID, func() (err error) {
		path, err = f.mount(r.ContainerID, "volume-"+strconv.Itoa(r.Index), r.ImageID, owner(r.UIDs))
		return err
	})
	return path, err
}

// Release is like image.Store.Release.
func (f *Fake) Release(ctx context.Context, container string) error {
	return f.hooked(ctx, "release", container, func() error {
		if !validID(container) {
			return fmt.Errorf("container id %q: %w", container, errdefs.ErrInvalidArgument)
		}
		delete(f.held, container)
		return os.RemoveAll(filepath.Join(f.dir, container))
	})
}

func (f *Fake) mount(container, name, ref string, uid int) (string, error) {
	if !validID(container) {
		return "", fmt.Errorf("container id %q: %w", container, errdefs.ErrInvalidArgument)
	}
	img, err := f.resolveLocked(ref)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(f.dir, container, name)
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	f.held[container] = true
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for path, content := range f.files[img.ID] {
		if err := write(filepath.Join(dir, path), content); err != nil {
			return "", err
		}
	}
	return dir, chownAll(dir, uid)
}

func write(path, content string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(content), 0o755)
}

// chownAll changes the owner of a tree to uid, as a user namespace would show it; it does nothing without privileges.
func chownAll(dir string, uid int) error {
	if uid == 0 {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := os.Lchown(path, uid, uid); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
		return nil
	})
}

func owner(uids []specs.LinuxIDMapping) int {
	for _, m := range uids {
		if m.ContainerID == 0 {
			return int(m.HostID)
		}
	}
	return 0
}

func validID(id string) bool {
	return id != "" && len(id) <= 64 && !strings.ContainsAny(id, "/\x00") && !strings.HasPrefix(id, ".")
}
