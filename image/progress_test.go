package image

import (
	"slices"
	"testing"

	"github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/types"
)

func report(event types.ProgressEvent, name string, size int64, offset, update uint64) types.ProgressProperties {
	return types.ProgressProperties{
		Event: event, Artifact: types.BlobInfo{Digest: digest.Digest(name), Size: size}, Offset: offset, OffsetUpdate: update,
	}
}

func TestProgress(t *testing.T) {
	p := newProgress("ref")
	waits := func(want bool, bytes uint64) {
		t.Helper()
		if received, waiting := p.waiting(); waiting != want || received != bytes {
			t.Errorf("received %d, waiting %v; want %d, %v", received, waiting, bytes, want)
		}
	}
	waits(true, 0)
	p.Downloading("")
	p.SetAsking(true)
	waits(false, 0)
	p.SetAsking(false)
	waits(true, 0)
	p.Note(report(types.ProgressEventNewArtifact, "a", 100, 0, 0))
	p.Note(report(types.ProgressEventSkipped, "b", 50, 0, 0))
	waits(true, 0)
	p.Note(report(types.ProgressEventRead, "a", 100, 40, 40))
	waits(true, 40)
	if got := p.snapshot(); got.Stage != StageDownloading || got.BytesDone != 90 || got.BytesTotal != 150 {
		t.Errorf("snapshot = %+v, want 90 of 150 bytes, %s", got, StageDownloading)
	}
	p.Note(report(types.ProgressEventRead, "a", 100, 100, 60))
	waits(false, 100) // all bytes are here, it is being unpacked
	if got := p.snapshot(); got.Stage != StageStoring {
		t.Errorf("stage %s, want %s", got.Stage, StageStoring)
	}
	p.Note(report(types.ProgressEventDone, "a", 100, 100, 0))
	p.Note(report(types.ProgressEventNewArtifact, "c", -1, 0, 0))
	waits(true, 100) // of unknown size: not done before it says so
	p.Note(report(types.ProgressEventDone, "c", -1, 7, 7))
	waits(false, 107)
	want := []LayerProgress{
		{Digest: "a", Done: 100, Total: 100, State: layerDone},
		{Digest: "b", Done: 50, Total: 50, State: layerPresent},
		{Digest: "c", Done: 7, State: layerDone},
	}
	if got := p.snapshot().Layers; !slices.Equal(got, want) {
		t.Errorf("layers %+v, want %+v", got, want)
	}
}

// TestProgressOfNextSource: layers of a source that failed do not count when another one is tried.
func TestProgressOfNextSource(t *testing.T) {
	p := newProgress("registry.test/app:v1")
	p.Downloading("")
	p.Note(types.ProgressProperties{Event: types.ProgressEventRead, OffsetUpdate: 5, Offset: 5,
		Artifact: types.BlobInfo{Digest: "sha256:0", Size: 10}})
	p.restart()
	if got := p.snapshot(); got.Stage != StageResolving || len(got.Layers) > 0 {
		t.Errorf("progress of the next source = %+v, want no layers", got)
	}
	if received, _ := p.waiting(); received != 5 {
		t.Errorf("%d bytes received, want all 5: the stall watch goes on", received)
	}
}
