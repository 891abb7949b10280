package layers

import (
	"context"
	"fmt"
	"io"

	"go.podman.io/image/v5/pkg/blobinfocache/none"
	"go.podman.io/image/v5/types"
)

// Download is a blob to fetch.
type Download struct {
	Source types.ImageSource
	Blob   types.BlobInfo
	// Most bounds its size in bytes.
	Most int64
	// Note gets the progress.
	Note func(types.ProgressProperties)
}

// Write fetches the blob and checks its digest.
func (d Download) Write(ctx context.Context, to io.Writer) error {
	if err := d.Blob.Digest.Validate(); err != nil {
		return err
	}
	body, _, err := d.Source.GetBlob(ctx, d.Blob, none.NoCache)
	if err != nil {
		return err
	}
	defer body.Close()
	sum := d.Blob.Digest.Verifier()
	reader := &progressReader{ctx: ctx, from: io.LimitReader(body, d.Most+1), blob: d.Blob, note: d.Note}
	n, err := io.Copy(io.MultiWriter(to, sum), reader)
	if err != nil {
		return err
	}
	if n > d.Most {
		return fmt.Errorf("the registry's blob has more than %d bytes", d.Most)
	}
	if !sum.Verified() {
		return fmt.Errorf("the registry's blob does not have the digest %s", d.Blob.Digest)
	}
	d.Note(types.ProgressProperties{Event: types.ProgressEventDone, Artifact: d.Blob, Offset: uint64(n)})
	return nil
}

// progressReader reports the bytes of a blob as it reads them, so that a stalled registry is noticed.
type progressReader struct {
	ctx  context.Context
	from io.Reader
	blob types.BlobInfo
	note func(types.ProgressProperties)
	done uint64
}

func (r *progressReader) Read(b []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	n, err := r.from.Read(b)
	r.done += uint64(n)
	r.note(types.ProgressProperties{
		Event: types.ProgressEventRead, Artifact: r.blob, Offset: r.done, OffsetUpdate: uint64(n),
	})
	return n, err
}
