package imagetest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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

// Fake keeps images in memory, and makes root filesystems that are plain directories below dir.
type Fake struct {
	dir string

	mu     sync.Mutex
	images []*image.Image
	files  map[string]map[string]string // by image id: path to content
	fail   func(op, container string) error
	held   map[string][]string // by container: the paths made
}

// NewFake returns a Fake without images. Dir must exist; root filesystems are made in it.
func NewFake(dir string) *Fake {
	return &Fake{dir: dir, files: map[string]map[string]string{}, held: map[string][]string{}}
}

// Add stores an image whose root filesystem has the given files (path to content). It replaces one of the same id.
func (f *Fake) Add(img image.Image, files map[string]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.images = slices.DeleteFunc(f.images, func(i *image.Image) bool { return i.ID == img.ID })
	f.images = append(f.images, &img)
	f.files[img.ID] = files
}

// FailWith has fail asked before each call, with the method's name and the container's id ("" for Resolve); what it
// returns is the call's error. Nil takes it away.
func (f *Fake) FailWith(fail func(op, container string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

// ContainersWithMounts returns the containers that have something left, sorted: none, after a clean teardown.
func (f *Fake) ContainersWithMounts(context.Context) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for id := range f.held {
		out = append(out, id)
	}
	slices.Sort(out)
	return out, nil
}

// Resolve is image.Store.Resolve.
func (f *Fake) Resolve(_ context.Context, ref string) (*image.Image, error) {
	if err := f.ask("Resolve", ""); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.resolveLocked(ref)
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

// named says whether ref, completed, is one of the image's names.
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

// Rootfs is image.Store.Rootfs.
func (f *Fake) Rootfs(_ context.Context, r image.RootfsRequest) (string, error) {
	if err := f.ask("Rootfs", r.ContainerID); err != nil {
		return "", err
	}
	return f.mount(r.ContainerID, "root", r.ImageID, owner(r.UIDs))
}

// Volume is image.Store.Volume; the directory is not read-only.
func (f *Fake) Volume(_ context.Context, r image.VolumeRequest) (string, error) {
	if err := f.ask("Volume", r.ContainerID); err != nil {
		return "", err
	}
	return f.mount(r.ContainerID, "volume-"+strconv.Itoa(r.Index), r.ImageID, owner(r.UIDs))
}

// Release is image.Store.Release.
func (f *Fake) Release(_ context.Context, container string) error {
	if err := f.ask("Release", container); err != nil {
		return err
	}
	if !validID(container) {
		return fmt.Errorf("container id %q: %w", container, errdefs.ErrInvalidArgument)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.held, container)
	return os.RemoveAll(filepath.Join(f.dir, container))
}

func (f *Fake) ask(op, container string) error {
	f.mu.Lock()
	fail := f.fail
	f.mu.Unlock()
	if fail == nil {
		return nil
	}
	return fail(op, container)
}

func (f *Fake) mount(container, name, ref string, uid int) (string, error) {
	if !validID(container) {
		return "", fmt.Errorf("container id %q: %w", container, errdefs.ErrInvalidArgument)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	img, err := f.resolveLocked(ref)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(f.dir, container, name)
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	f.held[container] = append(f.held[container], dir)
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

// chownAll gives a tree to uid, as a user namespace would show it; not without privileges.
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
