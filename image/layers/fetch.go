package layers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"

	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/pkg/blobinfocache/none"
	"go.podman.io/image/v5/types"
)

// download is a blob to fetch.
type download struct {
	source types.ImageSource
	blob   types.BlobInfo
	// most bounds its size in bytes.
	most int64
	// note gets the progress.
	note func(types.ProgressProperties)
}

// write fetches the blob into a file, whose content it replaces, and checks its digest. If the connection is lost and
// the library cannot go on where it was, as with a registry without ranges, it begins again, at most twice.
func (d download) write(ctx context.Context, to *os.File) error {
	if err := d.blob.Digest.Validate(); err != nil {
		return err
	}
	const attempts = 3
	var err error
	for range attempts {
		var cut bool
		if cut, err = d.attempt(ctx, to); !cut || ctx.Err() != nil {
			break
		}
	}
	return err
}

// attempt fetches the blob once. cut is true if the connection ended within it.
func (d download) attempt(ctx context.Context, to *os.File) (cut bool, err error) {
	if _, err := to.Seek(0, io.SeekStart); err != nil {
		return false, err
	}
	if err := to.Truncate(0); err != nil {
		return false, err
	}
	body, err := OpenBlob(ctx, d.source, d.blob)
	if err != nil {
		return false, err
	}
	defer body.Close()
	sum := d.blob.Digest.Verifier()
	reader := &progressReader{ctx: ctx, from: io.LimitReader(body, d.most+1), blob: d.blob, note: d.note}
	n, err := io.Copy(io.MultiWriter(to, sum), reader)
	if err != nil {
		return n > 0 && reader.failed, err
	}
	if n > d.most {
		return false, fmt.Errorf("the registry's blob has more than %d bytes", d.most)
	}
	if !sum.Verified() {
		return false, fmt.Errorf("the registry's blob does not have the digest %s", d.blob.Digest)
	}
	d.note(types.ProgressProperties{Event: types.ProgressEventDone, Artifact: d.blob, Offset: uint64(n)})
	return false, nil
}

// blobPauses are the times before a blob is requested again.
var blobPauses = []time.Duration{time.Second, 3 * time.Second}

// OpenBlob returns a blob of a registry. After a temporary error it asks again, twice, as containerd does.
func OpenBlob(ctx context.Context, from types.ImageSource, blob types.BlobInfo) (io.ReadCloser, error) {
	for attempt := 0; ; attempt++ {
		body, _, err := from.GetBlob(ctx, blob, none.NoCache)
		if err == nil || attempt == len(blobPauses) || !isTemporary(err) {
			return body, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(blobPauses[attempt]):
		}
	}
}

// isTemporary reports whether a registry has refused a request, or hung up, because it is overloaded or restarts. One
// that does not answer has had its time. The library asks again after 429 itself.
func isTemporary(err error) bool {
	var status docker.UnexpectedHTTPStatusError
	if errors.As(err, &status) {
		return slices.Contains([]int{500, 502, 503, 504}, status.StatusCode)
	}
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF)
}

// progressReader reports the bytes of a blob as it reads them, so that a stalled registry is noticed.
type progressReader struct {
	ctx  context.Context
	from io.Reader
	blob types.BlobInfo
	note func(types.ProgressProperties)
	done uint64
	// failed is set if from has failed.
	failed bool
}

func (r *progressReader) Read(b []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	n, err := r.from.Read(b)
	r.failed = err != nil && !errors.Is(err, io.EOF)
	r.done += uint64(n)
	r.note(types.ProgressProperties{
		Event: types.ProgressEventRead, Artifact: r.blob, Offset: r.done, OffsetUpdate: uint64(n),
	})
	return n, err
}
