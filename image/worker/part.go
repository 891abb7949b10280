package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/blobinfocache/none"
	"go.podman.io/image/v5/types"

	"github.com/podd-project/podd/image/registry"
)

// maxWindow bounds the memory for the decompression of a part, in bytes.
const maxWindow = 64 << 20

// Part is a part of an artifact.
type Part struct {
	// Digest and Size are those of a blob. Without them the part is the manifest.
	Digest digest.Digest
	Size   int64
	// Unpack is set for a blob that is decompressed (zstd).
	Unpack bool
	// Limit bounds the content, decompressed, in bytes.
	Limit int64
}

// sendPart writes job.Part, in the process.
func (job Job) sendPart(ctx context.Context, to io.Writer) error {
	named, err := reference.ParseNamed(job.Ref)
	if err != nil {
		return err
	}
	ref, err := docker.NewReference(named)
	if err != nil {
		return err
	}
	sys := job.Config.SystemContext()
	return job.Config.Guard(ctx, sys, named, job.Hosts, func(ctx context.Context) error {
		source, err := ref.NewImageSource(ctx, sys)
		if err != nil {
			return err
		}
		defer source.Close()
		return job.sendFrom(ctx, source, to)
	})
}

func (job Job) sendFrom(ctx context.Context, source types.ImageSource, to io.Writer) error {
	if job.Part.Digest == "" {
		data, kind, err := source.GetManifest(ctx, nil)
		if err != nil {
			return err
		}
		if kind != v1.MediaTypeImageManifest {
			return fmt.Errorf("it is %.100q, want an artifact: %w", kind, errdefs.ErrInvalidArgument)
		}
		return job.Part.copy(to, bytes.NewReader(data))
	}
	// Without URLs in the descriptor, so that the registry cannot name other hosts.
	from, _, err := source.GetBlob(ctx, types.BlobInfo{Digest: job.Part.Digest, Size: job.Part.Size}, none.NoCache)
	if err != nil {
		return err
	}
	defer from.Close()
	if !job.Part.Unpack {
		return job.Part.copy(to, from)
	}
	z, err := zstd.NewReader(job.Part.verify(from), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return err
	}
	defer z.Close()
	return job.Part.copy(to, z) // reads to the end of the blob
}

// FetchPart writes job.Part, fetched by a confined process, which is not trusted: the content of a blob that is not
// unpacked is compared with its digest here again. An error may come after content.
func FetchPart(ctx context.Context, job Job, c *registry.PullConfig, d Daemon, to io.Writer) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var copying sync.WaitGroup
	copying.Go(func() {
		if err := job.Part.copy(to, r); err != nil {
			cancel(err)
		}
		_ = r.Close() // a process that writes more fails
	})
	d.part = w
	_, err = Run(ctx, job, c, d)
	_ = w.Close() // nothing is buffered
	copying.Wait()
	if err == nil {
		err = context.Cause(ctx)
	}
	return err
}

// copy copies the content of a part within its limit, and compares that of a blob that is not unpacked.
func (p Part) copy(to io.Writer, from io.Reader) error {
	if p.Digest != "" && !p.Unpack {
		from = p.verify(from)
	}
	n, err := io.Copy(to, io.LimitReader(from, p.Limit+1))
	if err == nil && n > p.Limit {
		err = fmt.Errorf("it has more than the %d bytes that are allowed: %w", p.Limit, errdefs.ErrResourceExhausted)
	}
	return err
}

// verify returns a reader of a blob that returns errdefs.ErrDataLoss, instead of io.EOF, if it has another size or
// digest. It never reads more than the size and one byte.
func (p Part) verify(from io.Reader) io.Reader {
	return &verified{part: p, from: io.LimitReader(from, p.Size+1), hash: p.Digest.Verifier()}
}

type verified struct {
	part Part
	from io.Reader
	hash digest.Verifier
	read int64
}

func (v *verified) Read(p []byte) (int, error) {
	n, err := v.from.Read(p)
	v.read += int64(n)
	_, _ = v.hash.Write(p[:n]) // a hash does not fail
	if v.read > v.part.Size || errors.Is(err, io.EOF) && (v.read < v.part.Size || !v.hash.Verified()) {
		err = fmt.Errorf("the registry sent other content than %s of %d bytes: %w", v.part.Digest, v.part.Size,
			errdefs.ErrDataLoss)
	}
	return n, err
}
