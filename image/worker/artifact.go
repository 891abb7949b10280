package worker

import (
	"archive/tar"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/image/v5/types"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/image/layers"
)

// ArtifactLabel is a label of the image that is stored for an artifact: the digest of the artifact's manifest.
const ArtifactLabel = "io.podd.artifact"

// Limits of an artifact: each blob is a request, each tar a layer.
const (
	maxArtifactBlobs = 5000
	maxArtifactTars  = 100
)

// filepathKey is the annotation of ModelPack with the path of a file: github.com/modelpack/model-spec.
const filepathKey = "org.cnai.model.filepath"

// artifactImage is an artifact (image-spec, manifest.md) as an image without a command, so that it is stored, verified
// and mounted as one. Blobs that are tars are its layers; the others are files of its highest layer, with the
// names that "oras push" and ModelPack give them.
type artifactImage struct {
	*worker
	from *instance
	// left is how many bytes of the blobs' tars may still be read.
	left int64
	// layers and diffIDs are those of the image; files are the blobs of the layers.
	layers  []v1.Descriptor
	diffIDs []digest.Digest
	files   map[digest.Digest]string
}

// ofArtifact fetches the blobs of an artifact and returns the image, checked. An image it returns as it is.
func (w *worker) ofArtifact(
	ctx context.Context, img *instance, sys *types.SystemContext, out Progress,
) (*instance, error) {
	if !img.isArtifact {
		return img, nil
	}
	parsed, err := manifest.OCI1FromManifest(img.raw)
	if err != nil {
		return nil, err
	}
	blobs, err := w.artifactBlobs(parsed.Layers)
	if err != nil {
		return nil, fmt.Errorf("artifact: %w", err)
	}
	if err := w.fetchBlobs(ctx, img, blobs, out); err != nil {
		return nil, err
	}
	a := &artifactImage{worker: w, from: img, left: w.cfg.MaxImageBytes, files: map[digest.Digest]string{}}
	if err := a.addLayers(ctx, blobs); err != nil {
		return nil, fmt.Errorf("artifact: %w", err)
	}
	made, err := a.image(parsed.Annotations)
	if err != nil {
		return nil, err
	}
	return made, made.check(ctx, sys)
}

// artifactBlob is a blob of an artifact.
type artifactBlob struct {
	v1.Descriptor
	// name is the path of its file, path where the blob is.
	name, path string
}

// artifactBlobs names and checks the blobs of an artifact, without the empty one that stands for none.
func (w *worker) artifactBlobs(all []v1.Descriptor) (blobs []artifactBlob, err error) {
	names := map[string]bool{}
	left := w.cfg.MaxImageBytes
	if len(all) > maxArtifactBlobs {
		return nil, fmt.Errorf("it has %d blobs, at most %d are allowed: %w", len(all), maxArtifactBlobs,
			errdefs.ErrInvalidArgument)
	}
	for i, d := range all {
		if d.MediaType == v1.MediaTypeEmptyJSON {
			continue
		}
		if err := checkDigest(d.Digest); err != nil {
			return nil, err
		}
		if d.Size < 0 || d.Size == 0 && d.Digest != digest.FromBytes(nil) {
			return nil, fmt.Errorf("blob %s has the size %d: %w", d.Digest, d.Size, errdefs.ErrInvalidArgument)
		}
		if d.Size > left {
			return nil, fmt.Errorf("its blobs have more than %d bytes (max_image_bytes): %w", w.cfg.MaxImageBytes,
				errdefs.ErrResourceExhausted)
		}
		left -= d.Size
		if layers.IsEncrypted(d.MediaType) {
			return nil, fmt.Errorf("blob %s is encrypted: podd decrypts images only: %w", d.Digest, errdefs.ErrInvalidArgument)
		}
		name := d.Digest.Encoded()
		for _, key := range []string{filepathKey, v1.AnnotationTitle} {
			if title := d.Annotations[key]; title != "" {
				name = path.Clean(title)
			}
		}
		switch {
		case !isFileName(name):
			return nil, fmt.Errorf("%.200q cannot be the name of a file: %w", name, errdefs.ErrInvalidArgument)
		case names[name]:
			return nil, fmt.Errorf("two of its files have the name %.200q: %w", name, errdefs.ErrInvalidArgument)
		}
		names[name] = !hasTarType(d)
		blobs = append(blobs, artifactBlob{d, name, filepath.Join(w.temp, "artifact-"+strconv.Itoa(i))})
	}
	if len(blobs) == 0 {
		return nil, fmt.Errorf("it has no files: %w", errdefs.ErrInvalidArgument)
	}
	for _, b := range blobs {
		for dir := path.Dir(b.name); dir != "."; dir = path.Dir(dir) {
			if names[dir] {
				return nil, fmt.Errorf("its file %.200q is below the file %.200q: %w", b.name, dir, errdefs.ErrInvalidArgument)
			}
		}
	}
	return blobs, nil
}

// isFileName reports whether a clean path can be that of a file in a layer's tar, where .wh. begins a whiteout.
func isFileName(name string) bool {
	parts := strings.Split(name, "/")
	return filepath.IsLocal(name) && name != "." && !strings.Contains(name, "\x00") && len(name) <= maxPath &&
		len(parts) <= maxPathDepth && !slices.ContainsFunc(parts, func(part string) bool {
		return strings.HasPrefix(part, ".wh.") || len(part) > unix.NAME_MAX
	})
}

func (w *worker) fetchBlobs(ctx context.Context, img *instance, blobs []artifactBlob, out Progress) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxDownloads)
	adder := w.adder(img, nil, out)
	for _, b := range blobs {
		group.Go(func() error {
			if b.Size == 0 {
				return os.WriteFile(b.path, nil, 0o600)
			}
			// Without URLs in the descriptor, so that the registry cannot name other hosts.
			if err := adder.Fetch(ctx, types.BlobInfo{Digest: b.Digest, Size: b.Size}, b.path); err != nil {
				return fmt.Errorf("reading blob %s: %w", b.Digest, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// addLayers makes layers of the blobs.
func (a *artifactImage) addLayers(ctx context.Context, blobs []artifactBlob) error {
	var files []artifactBlob
	for _, b := range blobs {
		diffID, err := a.readTar(ctx, b)
		switch {
		case err != nil:
			return fmt.Errorf("%.200q: %w", b.name, err)
		case diffID == "":
			files = append(files, b)
			continue
		}
		a.add(b.path, b.Digest, b.Size, diffID)
	}
	if len(a.layers) > maxArtifactTars {
		return fmt.Errorf("it has %d tars, at most %d are allowed: %w", len(a.layers), maxArtifactTars,
			errdefs.ErrInvalidArgument)
	}
	if len(files) == 0 {
		return nil
	}
	return a.pack(ctx, files)
}

func (a *artifactImage) add(file string, blob digest.Digest, size int64, diffID digest.Digest) {
	if a.files[blob] != "" {
		return // the same files
	}
	a.files[blob], a.diffIDs = file, append(a.diffIDs, diffID)
	a.layers = append(a.layers, v1.Descriptor{MediaType: v1.MediaTypeImageLayer, Digest: blob, Size: size})
}

// hasTarType reports whether a blob has the type of a tar, perhaps compressed. The name of a tar is not used.
func hasTarType(d v1.Descriptor) bool {
	kind, _, _ := strings.Cut(strings.ReplaceAll(d.MediaType, ".tar.", ".tar+"), "+")
	return strings.HasSuffix(kind, ".tar")
}

// readTar returns the digest of a blob's tar, or none if the blob is not the tar that its type says: "oras push" gives
// other files such types too.
func (a *artifactImage) readTar(ctx context.Context, b artifactBlob) (digest.Digest, error) {
	if !hasTarType(b.Descriptor) {
		return "", nil
	}
	file, err := os.Open(b.path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	plain, err := layers.Decompress(layers.UntilDone{Context: ctx, From: file})
	if err != nil {
		return "", context.Cause(ctx) // not a tar
	}
	defer plain.Close()
	sum, bounded := digest.Canonical.Digester(), &boundedReader{from: plain, left: a.left, most: a.cfg.MaxImageBytes}
	content := io.TeeReader(bounded, sum.Hash())
	if _, err := tar.NewReader(content).Next(); err != nil {
		return "", context.Cause(ctx) // not a tar
	}
	_, err = io.Copy(io.Discard, content)
	if a.left = bounded.left; err != nil && a.left >= 0 && ctx.Err() == nil {
		return "", fmt.Errorf("%s: %w", err.Error(), errdefs.ErrInvalidArgument) // not that of a lost connection
	}
	return sum.Digest(), err
}

// pack makes a layer of files.
func (a *artifactImage) pack(ctx context.Context, files []artifactBlob) error {
	name := filepath.Join(a.temp, "artifact-files")
	to, err := os.Create(name)
	if err != nil {
		return err
	}
	defer to.Close()
	sum := digest.Canonical.Digester()
	out := tar.NewWriter(io.MultiWriter(to, sum.Hash()))
	for _, f := range files {
		if err := packFile(ctx, out, f); err != nil {
			return fmt.Errorf("%.200q: %w", f.name, err)
		}
	}
	if err := out.Close(); err != nil {
		return err
	}
	info, err := to.Stat()
	if err != nil {
		return err
	}
	a.add(name, sum.Digest(), info.Size(), sum.Digest())
	return to.Close()
}

// packFile moves a blob into a tar: an artifact may be most of the disk.
func packFile(ctx context.Context, to *tar.Writer, f artifactBlob) error {
	from, err := os.Open(f.path)
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat() // the descriptor's size is a limit
	if err != nil {
		return err
	}
	const mode = 0o644
	header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: mode, Size: info.Size()}
	if err := to.WriteHeader(header); err != nil {
		return err
	}
	if _, err := io.Copy(to, layers.UntilDone{Context: ctx, From: from}); err != nil {
		return err
	}
	return os.Remove(f.path)
}

// image returns the image of the layers.
func (a *artifactImage) image(annotations map[string]string) (*instance, error) {
	config, err := json.Marshal(v1.Image{
		Platform: v1.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH},
		Config:   v1.ImageConfig{Labels: map[string]string{ArtifactLabel: a.from.digest.String()}},
		RootFS:   v1.RootFS{Type: "layers", DiffIDs: a.diffIDs},
	})
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(v1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest,
		Config: v1.Descriptor{
			MediaType: v1.MediaTypeImageConfig, Digest: digest.FromBytes(config), Size: int64(len(config)),
		},
		Layers: a.layers, Annotations: annotations,
	})
	if err != nil {
		return nil, err
	}
	img, err := newInstance(a.from.ImageSource, rawManifest{raw, v1.MediaTypeImageManifest}, a.from.listed)
	if err != nil {
		return nil, err
	}
	img.top, img.isVariant, img.config, img.files = a.from.top, a.from.isVariant, config, a.files
	return img, nil
}
