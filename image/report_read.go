package image

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/types"
)

// maxReportedBlobs bounds the blobs of a pull, which podd remembers: more than a manifest of maxBlob bytes can list.
const maxReportedBlobs = 1 << 16

// readReports forwards reports to p until the end of r and returns the last one, with the images that were loaded, or
// an error if one is no report of a pull. It calls lookUp for what the process asks of the additional layer store.
func readReports(r io.Reader, p *progress, lookUp func(storeRequest) error) (last pullReport, err error) {
	to := reportReader{progress: p, blobs: map[digest.Digest]bool{}, lookUp: lookUp}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 4<<10), maxChildMessage)
	for lines.Scan() {
		var next pullReport
		if err := json.Unmarshal(lines.Bytes(), &next); err != nil {
			return pullReport{}, fmt.Errorf("read a report of the pull's process: %w", err)
		}
		if err := to.take(next); err != nil {
			return pullReport{}, fmt.Errorf("the pull's process reports %w", err)
		}
		last = next
	}
	last.Result.Loaded = to.loaded
	return last, lines.Err()
}

// reportReader keeps what the reports of one process say.
type reportReader struct {
	progress *progress
	blobs    map[digest.Digest]bool
	loaded   []loadedImage
	lookUp   func(storeRequest) error
	lookUps  int
}

func (to *reportReader) take(r pullReport) error {
	switch r.Kind {
	case reportStage:
		to.progress.setStage(StageDownloading)
		if name, err := reference.ParseNamed(r.Image); err == nil {
			to.progress.setRef(name.String())
		}
	case reportBlob:
		if to.blobs[r.Digest] = true; len(to.blobs) > maxReportedBlobs {
			return fmt.Errorf("more than %d blobs", maxReportedBlobs)
		}
		if err := r.Digest.Validate(); err != nil {
			return fmt.Errorf("a blob: %w", err)
		}
		to.progress.note(types.ProgressProperties{
			Event: r.Event, Artifact: types.BlobInfo{Digest: r.Digest, Size: r.Size},
			Offset: r.Offset, OffsetUpdate: r.OffsetUpdate,
		})
	case reportImage:
		if r.Loaded == nil || len(to.loaded) == maxLoadedImages {
			return fmt.Errorf("no image, or more than %d", maxLoadedImages)
		}
		to.loaded = append(to.loaded, *r.Loaded)
	case reportLookUp:
		if to.lookUps++; r.LookUp == nil || to.lookUps > 1 {
			return errors.New("no request to the additional layer store, or more than one")
		}
		return to.lookUp(*r.LookUp)
	}
	return nil
}
