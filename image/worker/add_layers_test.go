package worker

import (
	"slices"
	"testing"

	"go.podman.io/image/v5/types"
)

// events are the reports of blobs that it got, as "digest event".
type events struct{ got []string }

func (e *events) Note(p types.ProgressProperties) {
	names := map[types.ProgressEvent]string{
		types.ProgressEventNewArtifact: "new", types.ProgressEventRead: "read", types.ProgressEventDone: "done",
		types.ProgressEventSkipped: "skipped",
	}
	e.got = append(e.got, p.Artifact.Digest.String()+" "+names[p.Event])
}

func (*events) Downloading(string) {}

func (*events) SetAsking(bool) {}

// TestProgressOfFetched: a blob that was fetched before the copy stays fetched when the copy finds it; another one is
// reported as present.
func TestProgressOfFetched(t *testing.T) {
	e := &events{}
	f := newFetched(e, &instance{})
	for _, p := range []types.ProgressProperties{
		{Event: types.ProgressEventRead, Artifact: types.BlobInfo{Digest: "a", Size: 100}},
		{Event: types.ProgressEventDone, Artifact: types.BlobInfo{Digest: "a", Size: 100}},
		{Event: types.ProgressEventSkipped, Artifact: types.BlobInfo{Digest: "a", Size: 100}},
		{Event: types.ProgressEventSkipped, Artifact: types.BlobInfo{Digest: "b", Size: 50}},
	} {
		f.Note(p)
	}
	if want := []string{"a read", "a done", "b skipped"}; !slices.Equal(e.got, want) {
		t.Errorf("reports %q, want %q", e.got, want)
	}
}
