package worker

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/types"
)

// maxReportedBlobs bounds the blobs of a pull, which podd remembers: more than a manifest of MaxBlob bytes can list.
const maxReportedBlobs = 1 << 16

// Observer gets the progress that a pull's process reports.
type Observer interface {
	Progress
	// Downloading is called when layers are fetched, of the image ref if that is not empty.
	Downloading(ref string)
	// SetAsking says whether the daemon asks the additional layer store for the pull.
	SetAsking(bool)
}

// reportReader keeps the reports of one process. The daemon does not trust them.
type reportReader struct {
	progress Observer
	// lookUp looks layers up in the additional layer store.
	lookUp  func(LookUp) (Found, error)
	blobs   map[digest.Digest]bool
	loaded  []Loaded
	lookUps int
	last    pullReport
}

func newReportReader(p Observer, lookUp func(LookUp) (Found, error)) *reportReader {
	return &reportReader{progress: p, lookUp: lookUp, blobs: map[digest.Digest]bool{}}
}

// result returns the last report, with the images that were loaded.
func (to *reportReader) result() pullReport {
	last := to.last
	last.Result.Loaded = to.loaded
	return last
}

// take takes a report, or returns an error if it is not one of a pull. The reply is for the process.
func (to *reportReader) take(line []byte) (reply any, err error) {
	var next pullReport
	if err := json.Unmarshal(line, &next); err != nil {
		return nil, fmt.Errorf("read a report of the pull's process: %w", err)
	}
	if to.progress == nil && next.Kind != reportDone && next.Kind != reportFailed {
		return nil, fmt.Errorf("the pull's process reports %.20q, want its end only", next.Kind)
	}
	if next.Kind == reportLookUp {
		if to.lookUps++; to.lookUp == nil || next.LookUp == nil || to.lookUps > 1 {
			return nil, errors.New("the pull's process may send one request to the additional layer store, or none")
		}
		to.progress.SetAsking(true)
		defer to.progress.SetAsking(false)
		return to.lookUp(*next.LookUp)
	}
	if err := to.record(next); err != nil {
		return nil, fmt.Errorf("the pull's process reports %w", err)
	}
	to.last = next
	return nil, nil
}

// record records progress and images.
func (to *reportReader) record(r pullReport) error {
	switch r.Kind {
	case reportStage:
		ref := ""
		if name, err := reference.ParseNamed(r.Image); err == nil {
			ref = name.String()
		}
		to.progress.Downloading(ref)
	case reportBlob:
		if to.blobs[r.Digest] = true; len(to.blobs) > maxReportedBlobs {
			return fmt.Errorf("more than %d blobs", maxReportedBlobs)
		}
		if err := r.Digest.Validate(); err != nil {
			return fmt.Errorf("a blob: %w", err)
		}
		to.progress.Note(types.ProgressProperties{
			Event: r.Event, Artifact: types.BlobInfo{Digest: r.Digest, Size: r.Size},
			Offset: r.Offset, OffsetUpdate: r.OffsetUpdate,
		})
	case reportImage:
		if r.Loaded == nil || len(to.loaded) == maxLoadedImages {
			return fmt.Errorf("no image, or more than %d", maxLoadedImages)
		}
		to.loaded = append(to.loaded, *r.Loaded)
	}
	return nil
}
