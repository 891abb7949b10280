package worker

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	dockerarchive "go.podman.io/image/v5/docker/archive"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/oci/layout"
	"go.podman.io/image/v5/pkg/compression"
	"go.podman.io/image/v5/types"

	"github.com/podd-project/podd/image/layers"
	"github.com/podd-project/podd/image/registry"
)

// loader copies the images of a file into storage, in a process like that of a pull: the file is hostile.
type loader struct {
	*worker
	job Job
	out *reporter
	// hardLink is the name of a hard link in the archive.
	hardLink string
}

const (
	// maxLoadedImages bounds the images of one file.
	maxLoadedImages = 1000
	// maxLoadedNames bounds the names of one of them: they must fit into a report.
	maxLoadedNames = 100
)

// load copies all images of the file and reports each. If one fails, others may be copied.
func (l *loader) load(ctx context.Context) error {
	kind, err := l.archiveKind()
	if err != nil {
		return err
	}
	switch kind {
	case kindLayout:
		return l.loadLayout(ctx, l.job.Load, filepath.Base(l.job.Load))
	case kindOCIArchive:
		return l.loadOCIArchive(ctx)
	default:
		return l.loadDockerArchive(ctx)
	}
}

// loadError gives an error of load its kind: the file is wrong, unless it is too large or the disk is full.
func loadError(err error) error {
	switch {
	case err == nil, registry.HasKind(err), strings.Contains(err.Error(), layers.TooLarge),
		errors.Is(err, context.Canceled), layers.IsFull(err):
		return err
	}
	return fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
}

// Kinds of archives.
const (
	kindLayout = iota
	kindOCIArchive
	kindDockerArchive
)

// annotationContainerdName holds the full name of an image in an OCI index, as containerd and docker write it.
const annotationContainerdName = "io.containerd.image.name"

// dockerManifest is the list of the images in a docker archive.
const dockerManifest = "manifest.json"

// maxTarEntries bounds how many entries of a tar are read.
const maxTarEntries = 1 << 20

// archiveKind detects the kind of the file. A docker archive that is an OCI archive too (docker 25 and later) is loaded
// as an OCI archive: that has the digest of the registry's manifest.
func (l *loader) archiveKind() (int, error) {
	info, err := os.Stat(l.job.Load)
	if err != nil {
		return 0, err
	}
	if info.IsDir() {
		return kindLayout, nil
	}
	var hasLayout, hasIndex, hasManifest bool
	err = l.walkTar(func(h *tar.Header, _ io.Reader) error {
		if h.Typeflag == tar.TypeLink {
			l.hardLink = h.Name
		}
		switch path.Clean(h.Name) {
		case v1.ImageLayoutFile:
			hasLayout = true
		case v1.ImageIndexFile:
			hasIndex = true
		case dockerManifest:
			hasManifest = true
		}
		if hasLayout && hasIndex {
			return io.EOF
		}
		return nil
	})
	switch {
	case err != nil:
		return 0, fmt.Errorf("not an image archive: %w", err)
	case hasLayout && hasIndex:
		return kindOCIArchive, nil
	case hasManifest:
		return kindDockerArchive, nil
	}
	return 0, errors.New("neither an OCI nor a docker archive")
}

// walkTar calls visit for each entry of the file, a tar which may be compressed. visit returns io.EOF to stop. It fails
// if the files in the tar, or the tar itself, have more bytes than an image may have.
func (l *loader) walkTar(visit func(*tar.Header, io.Reader) error) error {
	f, err := os.Open(l.job.Load)
	if err != nil {
		return err
	}
	defer f.Close()
	plain, _, err := compression.AutoDecompress(f)
	if err != nil {
		return err
	}
	defer plain.Close()
	most := l.cfg.MaxImageBytes
	r := tar.NewReader(&boundedReader{from: plain, left: most, most: most})
	left := most
	for range maxTarEntries {
		h, err := r.Next()
		if err == nil && h.Size > left { // a sparse file is larger than the tar
			err = errTooLarge(most)
		}
		if err == nil {
			left -= h.Size
			err = visit(h, r)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("more than %d entries", maxTarEntries)
}

// boundedReader fails when more than most bytes are read.
type boundedReader struct {
	from       io.Reader
	left, most int64
}

func (r *boundedReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if r.left -= int64(n); r.left < 0 {
		return 0, errTooLarge(r.most)
	}
	return n, err
}

func errTooLarge(most int64) error {
	return fmt.Errorf("%w: more than %d bytes, uncompressed (max_image_bytes)", errdefs.ErrResourceExhausted, most)
}

// loadOCIArchive unpacks the layout in a tar and loads it. Files of a layout may be links to any file of the tar.
func (l *loader) loadOCIArchive(ctx context.Context) error {
	dir := filepath.Join(l.temp, "layout")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	err = l.walkTar(func(h *tar.Header, r io.Reader) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return extract(root, h, r)
	})
	if err != nil {
		return fmt.Errorf("OCI archive: %w", err)
	}
	base, _, _ := strings.Cut(filepath.Base(l.job.Load), ".")
	if err := l.loadLayout(ctx, dir, base); err != nil {
		return fmt.Errorf("OCI archive: %w", err)
	}
	return nil
}

// extract writes a file or a link, in the place of an earlier one. Other entries, and paths that lead out of root, are
// skipped; links that lead out cannot be opened.
func extract(root *os.Root, h *tar.Header, r io.Reader) error {
	name := path.Clean(h.Name)
	isLink := h.Typeflag == tar.TypeLink || h.Typeflag == tar.TypeSymlink
	if h.Typeflag != tar.TypeReg && !isLink || !filepath.IsLocal(name) {
		return nil
	}
	if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if h.Typeflag == tar.TypeLink {
		return root.Link(path.Clean(h.Linkname), name)
	}
	if isLink {
		return root.Symlink(h.Linkname, name)
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}

// loadLayout loads every image of an OCI layout that runs on this node; base replaces a missing repository. If an image
// fails, the file fails, but its other images are loaded.
func (l *loader) loadLayout(ctx context.Context, dir, base string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	index, err := readIndex(root)
	if err != nil {
		return err
	}
	if len(index.Manifests) > maxLoadedImages {
		return fmt.Errorf("more than %d images", maxLoadedImages)
	}
	tags := dockerTags(root)
	reader := layout.NewReaderWithRoot(root)
	found := 0
	var errs []error
	for i, d := range index.Manifests {
		if d.Platform != nil && checkRunnable(*d.Platform) != nil {
			continue
		}
		found++
		from, err := reader.NewIndexReference(dir, i)
		if err != nil {
			return err
		}
		names := func(id string) []reference.Named { return withDigest(layoutNames(d, tags[id], base), d) }
		if err := l.loadImage(ctx, from, names); err != nil {
			errs = append(errs, fmt.Errorf("image %.100q: %w", d.Digest, err))
		}
	}
	if found == 0 {
		errs = append(errs, errors.New("no image for this node's platform"))
	}
	return errors.Join(errs...)
}

func readIndex(root *os.Root) (v1.Index, error) {
	f, err := root.Open(v1.ImageIndexFile)
	if err != nil {
		return v1.Index{}, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, MaxBlob+1))
	if err != nil {
		return v1.Index{}, err
	}
	if len(raw) > MaxBlob {
		return v1.Index{}, fmt.Errorf("%s has more than %d bytes", v1.ImageIndexFile, MaxBlob)
	}
	var index v1.Index
	if err := json.Unmarshal(raw, &index); err != nil {
		return v1.Index{}, fmt.Errorf("parse %s: %w", v1.ImageIndexFile, err)
	}
	return index, nil
}

// dockerTags returns the names of images by id that a layout has if it is a docker archive too. Another manifest.json
// has none.
func dockerTags(root *os.Root) map[string][]reference.Named {
	f, err := root.Open(dockerManifest)
	if err != nil {
		return nil
	}
	defer f.Close()
	var items []struct {
		Config   string
		RepoTags []string
	}
	if err := json.NewDecoder(io.LimitReader(f, MaxBlob)).Decode(&items); err != nil {
		return nil
	}
	tags := map[string][]reference.Named{}
	for _, item := range items {
		id := strings.TrimPrefix(strings.TrimSuffix(path.Base(item.Config), ".json"), "sha256:")
		for _, tag := range item.RepoTags {
			named, _, err := registry.ParseReference(tag)
			if err == nil && !isDigested(named) {
				tags[id] = append(tags[id], named)
			}
		}
	}
	return tags
}

func isDigested(name reference.Named) bool {
	_, ok := name.(reference.Digested)
	return ok
}

// layoutNames returns the names of an image of a layout: containerd's annotation, or OCI's if that is a full name, or
// docker's tags. Without these a bare tag gets a repository named after the file, at localhost.
func layoutNames(d v1.Descriptor, tags []reference.Named, base string) []reference.Named {
	name := d.Annotations[annotationContainerdName]
	if name == "" {
		name = d.Annotations[v1.AnnotationRefName]
		isTag := !strings.ContainsAny(name, "/:")
		if isTag && len(tags) > 0 {
			return tags
		}
		if isTag && name != "" {
			name = "localhost/" + strings.ToLower(base) + ":" + name
		}
	}
	if name == "" {
		return nil
	}
	named, _, err := registry.ParseReference(name)
	if err != nil {
		return nil // the image can still be used by its id
	}
	return []reference.Named{named}
}

// withDigest adds the names by digest to names.
func withDigest(names []reference.Named, d v1.Descriptor) []reference.Named {
	out := slices.Clone(names)
	for _, name := range names {
		if canonical, err := reference.WithDigest(reference.TrimNamed(name), d.Digest); err == nil {
			out = append(out, canonical)
		}
	}
	return out
}

// loadDockerArchive loads every image of a "docker save" tar. Its manifests are generated while it is read, so there
// are not names by digest. The library reads hard links as empty files.
func (l *loader) loadDockerArchive(ctx context.Context) error {
	archive, err := dockerarchive.NewReader(l.systemContext(), l.job.Load)
	if err != nil {
		return err
	}
	defer archive.Close()
	images, err := archive.List()
	if err != nil {
		return err
	}
	if len(images) > maxLoadedImages {
		return fmt.Errorf("more than %d images", maxLoadedImages)
	}
	for i, refs := range images {
		var names []reference.Named
		for _, ref := range refs {
			if name := ref.DockerReference(); name != nil {
				names = append(names, name)
			}
		}
		err := checkNames(names)
		if err == nil {
			err = l.loadImage(ctx, refs[0], func(string) []reference.Named { return names })
		}
		if err != nil && l.hardLink != "" && !registry.HasKind(err) && !layers.IsFull(err) && ctx.Err() == nil {
			err = fmt.Errorf("%w (docker archives with hard links, as %.200q, are not supported)", err, l.hardLink)
		}
		if err != nil {
			return fmt.Errorf("image %d of the archive: %w", i+1, err)
		}
	}
	return nil
}

func checkNames(names []reference.Named) error {
	if len(names) > maxLoadedNames {
		return fmt.Errorf("it has more than %d names", maxLoadedNames)
	}
	return nil
}

// loadImage copies one image into storage and reports it, with the names that namesOf returns for its id.
func (l *loader) loadImage(
	ctx context.Context, from types.ImageReference, namesOf func(id string) []reference.Named,
) error {
	sys := l.systemContext()
	source, err := from.NewImageSource(ctx, sys)
	if err != nil {
		return err
	}
	opened := &openedReference{ImageReference: from, source: source}
	defer opened.close()
	img, err := chooseInstance(ctx, source, nil)
	if err != nil {
		return err
	}
	if err := img.check(ctx, sys); err != nil {
		return err
	}
	if img, err = l.ofArtifact(ctx, img, sys, l.out); err != nil {
		return err
	}
	names := namesOf(img.id)
	if err := checkNames(names); err != nil {
		return err
	}
	for _, name := range names {
		if digested, ok := name.(reference.Digested); ok && digested.Digest() != digest.FromBytes(img.top) {
			return fmt.Errorf("the manifest in the archive does not have the digest %s: write the archive again",
				digested.Digest())
		}
	}
	opened.source = img
	next := pullReport{Kind: reportStage}
	if len(names) > 0 {
		next.Image = names[0].String()
	}
	if err := l.out.send(next); err != nil {
		return err
	}
	job := copyJob{sys: sys, from: opened, image: img, progress: newFetched(l.out, img)}
	if job.lazy, err = l.addLayers(ctx, job, l.job.Corrupt); err != nil {
		return err
	}
	return l.copyLoaded(ctx, job, names)
}

// copyLoaded copies the image of job, whose layers are stored.
func (l *loader) copyLoaded(ctx context.Context, job copyJob, names []reference.Named) error {
	stored, err := l.copy(ctx, job)
	if err == nil {
		err = l.refetch(ctx, job, stored, l.job.Corrupt)
	}
	if err != nil {
		return err
	}
	done := &Loaded{ID: stored.ID}
	for _, name := range names {
		done.Names = append(done.Names, name.String())
	}
	return l.out.send(pullReport{Kind: reportImage, Loaded: done})
}
