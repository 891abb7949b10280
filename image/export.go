package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/containerd/errdefs"
	"go.podman.io/image/v5/copy"
	dockerarchive "go.podman.io/image/v5/docker/archive"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/manifest"
	ociarchive "go.podman.io/image/v5/oci/archive"
	"go.podman.io/image/v5/signature"
	containersstorage "go.podman.io/image/v5/storage"
	"go.podman.io/image/v5/types"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/image/layers"
	"github.com/podd-project/podd/image/registry"
)

// Export writes an image to a new file at an absolute path, with its tags: as a docker archive if its manifest is
// docker's, else as an OCI archive, so that its id stays the same when it is loaded. Layers are written without
// compression, so the digest of the manifest changes. The file appears when it is complete; until then there are only
// temporary files in Root, which the next start removes if podd is killed.
//
// Errors: errdefs.ErrNotFound, errdefs.ErrAlreadyExists for a file that exists, errdefs.ErrInvalidArgument.
func (s *Store) Export(ctx context.Context, ref, path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("export to %q: not an absolute path: %w", path, errdefs.ErrInvalidArgument)
	}
	e, err := s.find(ref)
	if err != nil {
		return err
	}
	if e.isLazy() {
		return fmt.Errorf("export %s: layers of it are in an additional layer store, podd does not have their files: %w",
			ref, errdefs.ErrFailedPrecondition)
	}
	from, err := containersstorage.Transport.NewStoreReference(s.storage, nil, e.ID)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(path); err == nil { // before the work
		return fmt.Errorf("export %s: %s exists: %w", ref, path, errdefs.ErrAlreadyExists)
	}
	dir, err := os.MkdirTemp(s.layout.Temp(), "export-")
	if err != nil {
		return fmt.Errorf("export %s: %w", ref, err)
	}
	defer os.RemoveAll(dir)
	whole := filepath.Join(dir, "archive")
	sys := func() *types.SystemContext { return s.layout.SystemContext(*s.cfg(), s.layout.Temp()) }
	if err := exportTo(ctx, sys, from, e, whole); err != nil {
		return fmt.Errorf("export %s: %w", ref, err)
	}
	if err := os.Chmod(whole, 0o600); err != nil { // the image may be of a private registry
		return fmt.Errorf("export %s: %w", ref, err)
	}
	err = os.Link(whole, path) // unlike rename, link replaces nothing
	if errors.Is(err, unix.EXDEV) {
		err = copyWhole(whole, path)
	}
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("export %s: %s exists: %w", ref, path, errdefs.ErrAlreadyExists)
	}
	if err != nil {
		return fmt.Errorf("export %s: %w", ref, err)
	}
	return nil
}

// copyWhole copies a file to a new one on another filesystem, which gets its name when it is complete: if podd is
// killed before, the kernel deletes it.
func copyWhole(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	copied, err := os.OpenFile(filepath.Dir(to), unix.O_TMPFILE|os.O_WRONLY, 0o600)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) {
		return fmt.Errorf("the filesystem of %s has no unnamed files (O_TMPFILE): export to another one: %w", to, err)
	}
	if err != nil {
		return err
	}
	defer copied.Close()
	if _, err := io.Copy(copied, source); err != nil {
		return err
	}
	if err := copied.Sync(); err != nil {
		return err
	}
	unnamed := fmt.Sprintf("/proc/self/fd/%d", copied.Fd())
	err = unix.Linkat(unix.AT_FDCWD, unnamed, unix.AT_FDCWD, to, unix.AT_SYMLINK_FOLLOW)
	if err != nil {
		return &os.LinkError{Op: "link", Old: unnamed, New: to, Err: err}
	}
	return nil
}

// exportTo copies an image to a file. Sys returns a new configuration of the library.
func exportTo(
	ctx context.Context, sys func() *types.SystemContext, from types.ImageReference, e *entry, file string,
) error {
	source, err := from.NewImageSource(ctx, sys())
	if err != nil {
		return err
	}
	raw, kind, err := source.GetManifest(ctx, nil)
	if err := errors.Join(err, source.Close()); err != nil {
		return err
	}
	man, err := manifest.FromBlob(raw, kind)
	if err != nil {
		return err
	}
	if isEncrypted(man) {
		return fmt.Errorf("it was pulled encrypted, and podd stores its layers decrypted: %w", errdefs.ErrFailedPrecondition)
	}
	tags := e.namedTags()
	to, err := exportReference(kind, file, tags)
	if err != nil {
		return err
	}
	policy, err := signature.NewPolicyContext(&signature.Policy{
		Default: signature.PolicyRequirements{signature.NewPRInsecureAcceptAnything()},
	})
	if err != nil {
		return err
	}
	defer func() { _ = policy.Destroy() }()
	destination := sys()
	if len(tags) > 1 {
		destination.DockerArchiveAdditionalTags = tags[1:]
	}
	_, err = copy.Image(ctx, policy, to, from, &copy.Options{
		SourceCtx: sys(), DestinationCtx: destination,
		RemoveSignatures: true, // an archive cannot hold them
	})
	return err
}

// isEncrypted reports whether the manifest of a stored image has encrypted layers, whose stored tars are not.
func isEncrypted(man manifest.Manifest) bool {
	isLayer := func(l manifest.LayerInfo) bool { return layers.IsEncrypted(l.MediaType) }
	return slices.ContainsFunc(man.LayerInfos(), isLayer)
}

// exportReference names the archive of an image with that type of manifest.
func exportReference(kind, file string, tags []reference.NamedTagged) (types.ImageReference, error) {
	if kind != manifest.DockerV2Schema2MediaType {
		name := ""
		if len(tags) > 0 {
			name = tags[0].String()
		}
		return ociarchive.NewReference(file, name)
	}
	var name reference.NamedTagged
	if len(tags) > 0 {
		name = tags[0]
	}
	return dockerarchive.NewReference(file, name)
}

func (e *entry) namedTags() []reference.NamedTagged {
	var tags []reference.NamedTagged
	for _, tag := range e.Tags {
		if name, _, err := registry.ParseReference(tag); err == nil {
			if tagged, ok := name.(reference.NamedTagged); ok {
				tags = append(tags, tagged)
			}
		}
	}
	return tags
}
