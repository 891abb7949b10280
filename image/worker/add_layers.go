package worker

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"
	containersimage "go.podman.io/image/v5/image"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/image/v5/types"

	"github.com/podd-project/podd/image/layers"
)

// maxUnpacks bounds the layers of one pull that are unpacked at the same time: each needs buffers of several MiB in the
// pull's memory (PullMemory).
const maxUnpacks = 4

// maxDownloads bounds the layers of one pull that are downloaded at the same time.
const maxDownloads = 6

// metadataShare: the headers and padding of the layers' tars may have MaxImageBytes divided by this on disk, where they
// are not compressed. It is enough for maxImageFiles with the
// default MaxImageBytes.
const metadataShare = 4

// addLayers stores the layers of an image side by side before it is copied: the copy then finds them in the store. It
// does nothing for an image that the signature policy rejects, or with layers that it does not know: the copy says what
// is wrong, or stores them one after the other. Neither does it for the platform's image of a list if the source does
// not remember manifests: registries count the requests for them.
//
// Layers that the additional layer store has are not fetched, except those in corrupt. It returns their ids.
func (w *worker) addLayers(
	ctx context.Context, job copyJob, source types.ImageSource, corrupt []string,
) (lazy []string, err error) {
	content := containersimage.UnparsedInstance(source, job.variant)
	if job.variant == nil {
		if content, err = platformImage(ctx, job.sys, source); err != nil || content == nil {
			return nil, nil //nolint:nilerr // the copy fails in the same way
		}
	}
	if allowed, err := job.policy.IsRunningImageAllowed(ctx, content); !allowed || err != nil {
		return nil, nil //nolint:nilerr // likewise
	}
	chain, ok := layerChain(ctx, job.sys, content)
	if !ok {
		return nil, nil
	}
	plan := lazyPlan{store: w.storage, chain: chain, corrupt: corrupt, most: w.cfg.MaxImageBytes}
	if err := plan.make(ctx, w.lookUp, content); err != nil {
		return nil, err
	}
	return plan.lazy(), w.adder(source, job.progress).Add(ctx, plan.chain)
}

// adder returns what stores the layers of one image, with its limits.
func (w *worker) adder(source types.ImageSource, out Progress) *layers.Adder {
	meter := &unpackMeter{mostBytes: w.cfg.MaxImageBytes, mostFiles: maxImageFiles}
	return &layers.Adder{
		Store: w.storage, Source: source, Dir: w.temp, Note: out.Note, Count: meter.add,
		MaxMetadata: w.cfg.MaxImageBytes / metadataShare,
		Downloads:   maxDownloads, Unpacks: min(runtime.GOMAXPROCS(0), maxUnpacks),
	}
}

// platformImage returns the image for this node, which may be in a list; nil for a list of which it does not look at
// one.
func platformImage(
	ctx context.Context, sys *types.SystemContext, source types.ImageSource,
) (*containersimage.UnparsedImage, error) {
	content := containersimage.UnparsedInstance(source, nil)
	blob, mime, err := content.Manifest(ctx)
	if err != nil || !manifest.MIMETypeIsMultiImage(mime) {
		return content, err
	}
	if _, ok := source.(*rememberingSource); !ok {
		return nil, nil
	}
	list, err := manifest.ListFromBlob(blob, mime)
	if err != nil {
		return nil, err
	}
	instance, err := list.ChooseInstance(sys)
	if err != nil {
		return nil, err
	}
	return containersimage.UnparsedInstance(source, &instance), nil
}

// layerChain returns the layers of an image, or false if one is not a tar, or the config does not have their digests.
func layerChain(
	ctx context.Context, sys *types.SystemContext, content *containersimage.UnparsedImage,
) ([]layers.Layer, bool) {
	img, err := containersimage.FromUnparsedImage(ctx, sys, content)
	if err != nil {
		return nil, false
	}
	config, err := img.OCIConfig(ctx)
	if err != nil {
		return nil, false
	}
	blobs := img.LayerInfos()
	kinds := []string{".tar", ".tar.gzip", ".tar+gzip", ".tar.zstd", ".tar+zstd"}
	unknown := func(blob types.BlobInfo) bool {
		return !slices.ContainsFunc(kinds, func(kind string) bool { return strings.HasSuffix(blob.MediaType, kind) })
	}
	if slices.ContainsFunc(blobs, unknown) {
		return nil, false
	}
	return layers.Chain(blobs, config.RootFS.DiffIDs)
}

// Progress takes the library's reports of a transfer.
type Progress interface {
	Note(types.ProgressProperties)
}

// fetched passes reports on, except those of the copy that a blob is present which addLayers has fetched.
type fetched struct {
	to    Progress
	mu    sync.Mutex
	blobs map[digest.Digest]bool
}

func newFetched(to Progress) *fetched { return &fetched{to: to, blobs: map[digest.Digest]bool{}} }

func (f *fetched) Note(p types.ProgressProperties) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.Event == types.ProgressEventSkipped && f.blobs[p.Artifact.Digest] {
		return
	}
	f.blobs[p.Artifact.Digest] = true
	f.to.Note(p)
}
