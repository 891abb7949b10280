package images

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"golang.org/x/sys/unix"
)

// sources are the files that determine the content of the images. When one changes, the images are built again.
//
//go:embed catalog.go debian.go elf.go hostile.go own.go recipes.go tree.go progs
var sources embed.FS

// refName is the annotation with an image's name in an OCI layout.
const refName = "org.opencontainers.image.ref.name"

// Build returns the OCI layout with all images, and builds it unless the cache has it. Concurrent callers, also in
// other processes, wait for each other.
func Build(ctx context.Context) (layout.Path, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	key, err := sourceKey()
	if err != nil {
		return "", err
	}
	home := filepath.Join(cache, "images")
	dir := filepath.Join(home, key)
	if built(dir) {
		return layout.FromPath(dir)
	}
	if err := os.MkdirAll(home, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(filepath.Join(home, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if built(dir) { // by the previous holder of the lock
		return layout.FromPath(dir)
	}
	if err := build(ctx, filepath.Join(cache, "debs"), home, dir); err != nil {
		return "", fmt.Errorf("build the test images: %w", err)
	}
	return layout.FromPath(dir)
}

func built(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "index.json"))
	return err == nil
}

// build creates the layout in a scratch directory, moves it to dir when it is complete, and removes older layouts.
func build(ctx context.Context, debs, home, dir string) error {
	scratch, err := os.MkdirTemp(home, "new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	parts, err := gather(ctx, debs, scratch)
	if err != nil {
		return err
	}
	items, err := everything(parts)
	if err != nil {
		return err
	}
	path, err := layout.Write(filepath.Join(scratch, "layout"), empty.Index)
	if err != nil {
		return err
	}
	for _, it := range items {
		if err := it.write(path); err != nil {
			return fmt.Errorf("write %s: %w", it.names[0], err)
		}
	}
	return replace(filepath.Join(scratch, "layout"), home, dir)
}

// write adds the item to the layout, once for each of its names.
func (it item) write(path layout.Path) error {
	var describable partial.Describable = it.image
	if it.index != nil {
		if err := path.WriteIndex(it.index); err != nil {
			return err
		}
		describable = it.index
	} else if err := path.WriteImage(it.image); err != nil {
		return err
	}
	desc, err := partial.Descriptor(describable)
	if err != nil {
		return err
	}
	for _, name := range it.names {
		d := *desc
		d.Annotations = map[string]string{refName: name}
		if err := path.AppendDescriptor(d); err != nil {
			return err
		}
	}
	return nil
}

// replace moves the new layout to dir and removes those with other keys.
func replace(from, home, dir string) error {
	old, err := os.ReadDir(home)
	if err != nil {
		return err
	}
	if err := os.Rename(from, dir); err != nil {
		return err
	}
	for _, e := range old {
		if e.IsDir() && !strings.HasPrefix(e.Name(), "new-") && e.Name() != filepath.Base(dir) {
			if err := os.RemoveAll(filepath.Join(home, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// sourceKey returns a hash of the sources and the architecture.
func sourceKey() (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, runtime.GOARCH)
	err := fs.WalkDir(sources, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := sources.ReadFile(path)
		fmt.Fprintln(h, path, len(data))
		_, _ = h.Write(data) // a hash's Write never fails
		return err
	})
	return hex.EncodeToString(h.Sum(nil))[:16], err
}

// lock takes an exclusive file lock.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// Names lists the images of the layout, as repository:tag.
func Names(path layout.Path) ([]string, error) {
	list, err := descriptors(path)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(list))
	for i, d := range list {
		names[i] = d.Annotations[refName]
	}
	return names, nil
}

func descriptors(path layout.Path) ([]v1.Descriptor, error) {
	index, err := path.ImageIndex()
	if err != nil {
		return nil, err
	}
	m, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	return m.Manifests, nil
}

// Export writes one image as an OCI layout into dir, which it creates. ref is the image's name there, which a runtime
// that loads the directory shows. It is for directories of preloaded images.
func Export(path layout.Path, name, ref, dir string) error {
	index, err := path.ImageIndex()
	if err != nil {
		return err
	}
	found, err := partial.FindImages(index, match.Annotation(refName, name))
	if err != nil {
		return err
	}
	if len(found) != 1 {
		return fmt.Errorf("test image %s: %d found: %w", name, len(found), os.ErrNotExist)
	}
	out, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	return out.AppendImage(found[0], layout.WithAnnotations(map[string]string{refName: ref}))
}
