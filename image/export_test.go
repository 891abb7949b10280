package image_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// TestExport: an image keeps its id and its tags on the way through an archive into another store.
func TestExport(t *testing.T) {
	t.Parallel()
	for name, img := range map[string]v1.Image{"docker": simple(t, "docker"), "oci": ociImage(t)} {
		t.Run(name, func(t *testing.T) {
			reg := newRegistry(t)
			reg.push(t, "app:v1", img)
			from, to := open(t, config(t, reg.host)), open(t, config(t))
			ref, id := reg.host+"/app:v1", imageID(t, img)
			pull(t, from, ref)
			dir := t.TempDir()
			file := filepath.Join(dir, "image.tar")
			for _, by := range []string{ref, id} {
				if err := from.Export(t.Context(), by, file); err != nil {
					t.Fatal(err)
				}
				if err := from.Export(t.Context(), by, file); !errdefs.IsAlreadyExists(err) {
					t.Errorf("Export() to a file that exists = %v, want %v", err, errdefs.ErrAlreadyExists)
				}
				if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
					t.Errorf("Stat of the archive = %v, %v, want mode 0600", info, err)
				}
				loaded, err := to.LoadFile(t.Context(), file)
				if err != nil || len(loaded) != 1 || loaded[0].ID != id || !slices.Contains(loaded[0].Tags, ref) {
					t.Fatalf("LoadFile() = %+v, %v, want %s with its tag", loaded, err, id)
				}
				if found, err := to.Verify(t.Context(), false); err != nil || len(found) > 0 {
					t.Errorf("Verify() = %v, %v, want nothing", found, err)
				}
				if err := os.Remove(file); err != nil {
					t.Fatal(err)
				}
			}
			checkNoFiles(t, dir)
		})
	}
}

// TestExportToAnotherFilesystem: there too the file appears when it is complete, and replaces nothing.
func TestExportToAnotherFilesystem(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	img := simple(t, "x")
	reg.push(t, "app:v1", img)
	s := open(t, config(t, reg.host))
	pull(t, s, reg.host+"/app:v1")
	dir := filepath.Join(t.TempDir(), "mounted")
	mountTmpfs(t, dir, "size=4m")
	file := filepath.Join(dir, "image.tar")
	if err := s.Export(t.Context(), imageID(t, img), file); err != nil {
		t.Fatal(err)
	}
	if err := s.Export(t.Context(), imageID(t, img), file); !errdefs.IsAlreadyExists(err) {
		t.Errorf("Export() to a file that exists = %v, want %v", err, errdefs.ErrAlreadyExists)
	}
	to := open(t, config(t))
	if loaded, err := to.LoadFile(t.Context(), file); err != nil || len(loaded) != 1 || loaded[0].ID != imageID(t, img) {
		t.Errorf("LoadFile() = %+v, %v, want %s", loaded, err, imageID(t, img))
	}
	full := filepath.Join(t.TempDir(), "full")
	mountTmpfs(t, full, "size=4k")
	if err := s.Export(t.Context(), imageID(t, img), full+"/image.tar"); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Export() to a full filesystem = %v, want that no space is left", err)
	}
	checkNoFiles(t, full)
}

// ociImage returns an image with OCI's media types.
func ociImage(t *testing.T) v1.Image {
	t.Helper()
	l, err := tarball.LayerFromOpener(layer(t, tree{"file": "oci"}).Uncompressed, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(craft(t, nil), l)
	if err != nil {
		t.Fatal(err)
	}
	return mutate.ConfigMediaType(mutate.MediaType(img, types.OCIManifestSchema1), types.OCIConfigJSON)
}

func TestExportRefuses(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	reg.push(t, "app:v1", simple(t, "x"))
	s := open(t, config(t, reg.host))
	img := pull(t, s, reg.host+"/app:v1")
	dir := t.TempDir()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx       context.Context
		ref, path string
		is        func(error) bool
	}{
		"relative path":  {t.Context(), img.ID, "image.tar", errdefs.IsInvalidArgument},
		"absent image":   {t.Context(), "registry.test/absent:v1", dir + "/x", errdefs.IsNotFound},
		"no directory":   {t.Context(), img.ID, dir + "/no/x", os.IsNotExist},
		"caller is gone": {ended, img.ID, dir + "/x", errdefs.IsCanceled},
	} {
		err := s.Export(c.ctx, c.ref, c.path)
		if err == nil || !c.is(err) && !c.is(unwrapped(err)) {
			t.Errorf("%s: Export() = %v, want another error", name, err)
		}
	}
	checkNoFiles(t, dir)
}

// unwrapped returns the innermost error.
func unwrapped(err error) error {
	for {
		next, ok := err.(interface{ Unwrap() error })
		if !ok {
			return err
		}
		err = next.Unwrap()
	}
}
