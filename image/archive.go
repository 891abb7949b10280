package image

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	dockerarchive "go.podman.io/image/v5/docker/archive"
	"go.podman.io/image/v5/docker/reference"
	containersimage "go.podman.io/image/v5/image"
	"go.podman.io/image/v5/oci/layout"
	"go.podman.io/image/v5/pkg/compression"
	"go.podman.io/image/v5/signature"
	"go.podman.io/image/v5/types"
)

// Kinds of archives.
const (
	kindLayout = iota
	kindOCIArchive
	kindDockerArchive
)

// annotationContainerdName holds the full name of an image in an OCI index, as containerd and docker write it.
const annotationContainerdName = "io.containerd.image.name"

// maxTarEntries bounds how many entries of a tar are read to detect its kind.
const maxTarEntries = 1 << 20

// archiveKind detects the kind of a file. A docker archive that is an OCI archive too (docker 25 and later) is loaded
// as an OCI archive: that has the digest of the registry's manifest.
func archiveKind(file string) (int, error) {
	info, err := os.Stat(file)
	if err != nil {
		return 0, err
	}
	if info.IsDir() {
		return kindLayout, nil
	}
	if !info.Mode().IsRegular() {
		return 0, errors.New("neither a directory nor a regular file")
	}
	found := map[string]bool{}
	err = walkTar(file, func(h *tar.Header, _ io.Reader) error {
		found[path.Clean(h.Name)] = true
		if found[v1.ImageLayoutFile] && found[v1.ImageIndexFile] {
			return io.EOF
		}
		return nil
	})
	switch {
	case found[v1.ImageLayoutFile] && found[v1.ImageIndexFile]:
		return kindOCIArchive, nil
	case err != nil:
		return 0, fmt.Errorf("not an image archive: %w", err)
	case found["manifest.json"]:
		return kindDockerArchive, nil
	}
	return 0, errors.New("neither an OCI nor a docker archive")
}

// walkTar calls visit for each entry of a tar, which may be compressed. visit returns io.EOF to stop.
func walkTar(file string, visit func(*tar.Header, io.Reader) error) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	plain, _, err := compression.AutoDecompress(f)
	if err != nil {
		return err
	}
	defer plain.Close()
	r := tar.NewReader(plain)
	for range maxTarEntries {
		h, err := r.Next()
		if err == nil {
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

// loadOCIArchive unpacks the layout in a tar and loads it. Links and files that are no part of a layout are skipped.
func (s *Store) loadOCIArchive(ctx context.Context, file string) ([]string, error) {
	dir, err := os.MkdirTemp(filepath.Join(s.cfg().Root, tempDir), "preload-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	err = walkTar(file, func(h *tar.Header, r io.Reader) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return extract(root, h, r)
	})
	if err != nil {
		return nil, err
	}
	base, _, _ := strings.Cut(filepath.Base(file), ".")
	ids, err := s.loadLayout(ctx, dir, base)
	if err != nil {
		return nil, fmt.Errorf("OCI archive: %w", err)
	}
	return ids, nil
}

func extract(root *os.Root, h *tar.Header, r io.Reader) error {
	name := path.Clean(h.Name)
	if h.Typeflag != tar.TypeReg {
		return nil
	}
	if name != v1.ImageLayoutFile && name != v1.ImageIndexFile && !strings.HasPrefix(name, v1.ImageBlobsDir+"/") {
		return nil
	}
	if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}

// loadLayout loads every image of an OCI layout that runs on this node; base replaces a missing repository. If an image
// fails, the file fails, but its other images stay loaded.
func (s *Store) loadLayout(ctx context.Context, dir, base string) ([]string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	index, err := readIndex(root)
	if err != nil {
		return nil, err
	}
	reader := layout.NewReaderWithRoot(root)
	var ids []string
	var errs []error
	for i, d := range index.Manifests {
		if d.Platform != nil && checkRunnable(*d.Platform) != nil {
			continue
		}
		from, err := reader.NewIndexReference(dir, i)
		if err != nil {
			return nil, err
		}
		id, err := s.loadImage(ctx, from, withDigest(layoutNames(d, base), d), d.Digest.String())
		if err != nil {
			errs = append(errs, err)
			continue
		}
		ids = append(ids, id)
	}
	if len(ids) == 0 && len(errs) == 0 {
		errs = append(errs, errors.New("no image for this node's platform"))
	}
	return ids, errors.Join(errs...)
}

func readIndex(root *os.Root) (v1.Index, error) {
	f, err := root.Open(v1.ImageIndexFile)
	if err != nil {
		return v1.Index{}, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxBlob+1))
	if err != nil {
		return v1.Index{}, err
	}
	if len(raw) > maxBlob {
		return v1.Index{}, fmt.Errorf("%s has more than %d bytes", v1.ImageIndexFile, maxBlob)
	}
	var index v1.Index
	if err := json.Unmarshal(raw, &index); err != nil {
		return v1.Index{}, fmt.Errorf("parse %s: %w", v1.ImageIndexFile, err)
	}
	return index, nil
}

// layoutNames returns the names of an image of a layout: containerd's annotation, or OCI's if that is a full name. A
// bare tag gets a repository named after the file, at localhost.
func layoutNames(d v1.Descriptor, base string) []reference.Named {
	name := d.Annotations[annotationContainerdName]
	if name == "" {
		name = d.Annotations[v1.AnnotationRefName]
		if name != "" && !strings.ContainsAny(name, "/:") {
			name = "localhost/" + strings.ToLower(base) + ":" + name
		}
	}
	if name == "" {
		return nil
	}
	named, _, err := parseReference(name)
	if err != nil {
		return nil // the image can still be used by its id
	}
	return []reference.Named{named}
}

// withDigest adds the names by digest to names.
func withDigest(names []reference.Named, d v1.Descriptor) []reference.Named {
	out := names
	for _, name := range names {
		if canonical, err := reference.WithDigest(reference.TrimNamed(name), d.Digest); err == nil {
			out = append(out, canonical)
		}
	}
	return out
}

// loadDockerArchive loads every image of a "docker save" tar. Its manifests are generated while it is read, so there
// are no names by digest.
func (s *Store) loadDockerArchive(ctx context.Context, file string) ([]string, error) {
	archive, err := dockerarchive.NewReader(s.systemContext(), file)
	if err != nil {
		return nil, err
	}
	defer archive.Close()
	images, err := archive.List()
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, refs := range images {
		var names []reference.Named
		for _, ref := range refs {
			if name := ref.DockerReference(); name != nil {
				names = append(names, name)
			}
		}
		id, err := s.loadImage(ctx, refs[0], names, file)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// loadImage copies one local image into storage and returns its id. what names the image in errors.
func (s *Store) loadImage(
	ctx context.Context, from types.ImageReference, names []reference.Named, what string,
) (string, error) {
	sys := s.systemContext()
	source, err := from.NewImageSource(ctx, sys)
	if err != nil {
		return "", fmt.Errorf("image %s: %w", what, err)
	}
	opened := &openedReference{ImageReference: from, source: source}
	defer opened.close()
	if err := checkSource(ctx, sys, source); err != nil {
		return "", fmt.Errorf("image %s: %w", what, err)
	}
	policy, err := signature.NewPolicyContext(&signature.Policy{
		Default: signature.PolicyRequirements{signature.NewPRInsecureAcceptAnything()},
	})
	if err != nil {
		return "", err
	}
	p := newProgress(what)
	if len(names) > 0 {
		p = newProgress(names[0].String())
	}
	p.setStage(StageDownloading)
	defer s.pulls.track(p)()
	job := copyJob{sys: sys, policy: policy, from: opened, progress: p}
	if len(names) > 0 {
		job.ref = names[0]
	} else if job.id, err = configID(ctx, sys, source); err != nil {
		return "", fmt.Errorf("image %s: %w", what, err)
	}
	stored, err := s.copy(ctx, job)
	if err == nil {
		err = s.repair(ctx, job, stored, p)
	}
	if err != nil {
		return "", fmt.Errorf("image %s: %w", what, err)
	}
	img, err := s.register(stored, names...)
	if err == nil {
		err = s.markLoaded(stored.ID)
	}
	if err != nil {
		return "", fmt.Errorf("image %s: %w", what, err)
	}
	return img.ID, nil
}

// configID returns the id that an image gets in storage.
func configID(ctx context.Context, sys *types.SystemContext, source types.ImageSource) (string, error) {
	img, err := containersimage.FromUnparsedImage(ctx, sys, containersimage.UnparsedInstance(source, nil))
	if err != nil {
		return "", fmt.Errorf("read manifest: %w", err)
	}
	digest := img.ConfigInfo().Digest
	if err := digest.Validate(); err != nil {
		return "", fmt.Errorf("digest of the config: %w", err)
	}
	return digest.Encoded(), nil
}
