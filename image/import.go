package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/oci/layout"
	"go.podman.io/image/v5/types"
)

// ImportRequest is an image in the blobs of another program's store, to be copied into this one.
type ImportRequest struct {
	// Names are full names, with a tag or a digest. Those that are no names, such as "sha256:<id>", are left out.
	Names []string
	// Manifest is the manifest of the image, or of its list.
	Manifest v1.Descriptor
	// Blobs is a directory with a file <algorithm>/<hex> for each blob, as in an OCI layout. It is only read.
	Blobs string
	// Storage is set instead of Blobs for an image in another directory of containers/storage, Stored is its id there.
	// Manifest is then that of the image for this platform. It is only read, but for locks.
	Storage, Stored string
}

// Import copies an image as if it were pulled by its names: in a confined process, if the signature policy accepts it,
// and with the limits of a pull. Of containers/storage the signatures are copied too, blobs have none. It reports
// whether anything was copied: an image that is in the store already only gets the names. It calls report at times.
//
// Errors are those of Pull, and errdefs.ErrNotFound if a blob is missing.
func (s *Store) Import(ctx context.Context, r ImportRequest, report func(PullProgress)) (copied bool, err error) {
	names := r.references()
	if len(names) == 0 {
		return false, fmt.Errorf("image %s has no name: %w", r.Manifest.Digest, errdefs.ErrInvalidArgument)
	}
	ref := names[0]
	if e, ok := s.index.Load().named(names); ok {
		stored, err := s.storage.Image(e.ID)
		if err == nil {
			_, err = s.register(stored, names...)
		}
		return false, err
	}
	c := &pullConfig{Config: *s.cfg()}
	defer c.close()
	if err := c.writeFiles(nil, nil); err != nil {
		return false, err
	}
	job := pullJob{Ref: ref.String(), Blobs: r.Blobs, Storage: r.Storage, Stored: r.Stored}
	if r.Stored != "" {
		for _, name := range names {
			job.Names = append(job.Names, name.String())
		}
	} else if err := writeLayout(filepath.Join(c.dir, importDir), r.Manifest); err != nil {
		return false, err
	}
	p := newProgress(ref.String())
	stop := everySecond(func() { report(p.snapshot()) })
	result, err := s.pullInChild(ctx, job, c, p)
	stop()
	if err != nil {
		return false, &pullError{
			text: fmt.Sprintf("import %s: %s", ref, scrub(classify(err).Error(), nil)), kind: kindOf(err), cause: err,
		}
	}
	stored, err := s.storage.Image(result.ID)
	if err != nil {
		return true, fmt.Errorf("look up the imported image: %w", err)
	}
	_, err = s.register(stored, names...)
	return true, err
}

// references returns the names, those with a tag first, and a name by digest for each repository.
func (r ImportRequest) references() []reference.Named {
	var tags, digests []reference.Named
	seen := map[string]bool{}
	for _, text := range r.Names {
		if strings.HasPrefix(text, r.Manifest.Digest.Algorithm().String()+":") {
			continue
		}
		name, _, err := parseReference(text)
		if err != nil {
			continue
		}
		if _, tagged := name.(reference.Tagged); tagged {
			tags = append(tags, name)
		}
		canonical, err := reference.WithDigest(reference.TrimNamed(name), r.Manifest.Digest)
		if own, ok := name.(reference.Canonical); ok && r.Stored != "" { // its digest may be that of the image's list
			canonical = own
		}
		if err == nil && !seen[canonical.String()] {
			seen[canonical.String()] = true
			digests = append(digests, canonical)
		}
	}
	return append(tags, digests...)
}

// named returns the image that has one of the names by digest.
func (ix *index) named(names []reference.Named) (*entry, bool) {
	for _, name := range names {
		if _, digested := name.(reference.Digested); !digested {
			continue
		}
		if e, ok := ix.byName[name.String()]; ok {
			return e, true
		}
	}
	return nil, false
}

// importDir is in a pull's directory: an OCI layout without blobs, whose only image is the one to import.
const importDir = "import"

func writeLayout(dir string, manifest v1.Descriptor) error {
	index := v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, Manifests: []v1.Descriptor{manifest}}
	raw, err := json.Marshal(index)
	if err != nil {
		return err
	}
	version, err := json.Marshal(v1.ImageLayout{Version: v1.ImageLayoutVersion})
	if err != nil {
		return err
	}
	return errors.Join(
		os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, v1.ImageLayoutFile), version, 0o600),
		os.WriteFile(filepath.Join(dir, v1.ImageIndexFile), raw, 0o600),
	)
}

// openImport opens the image that job imports, in a pull's process. It has the name that it would be pulled by, for
// which the signature policy decides; there are no signatures.
func openImport(
	ctx context.Context, sys *types.SystemContext, dir string, name types.ImageReference,
) (types.ImageSource, error) {
	from, err := layout.NewIndexReference(filepath.Join(dir, importDir), 0)
	if err != nil {
		return nil, err
	}
	source, err := from.NewImageSource(ctx, sys)
	if err != nil {
		return nil, err
	}
	return &renamedSource{source, name}, nil
}

// renamedSource is a source under another name.
type renamedSource struct {
	types.ImageSource
	ref types.ImageReference
}

func (s *renamedSource) Reference() types.ImageReference { return s.ref }

// everySecond calls f at intervals until stop is called, and once more then.
func everySecond(f func()) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				f()
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
		f()
	}
}
