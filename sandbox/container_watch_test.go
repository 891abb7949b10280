package sandbox

import (
	"testing"
	"time"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/record"
)

// TestExitIsNotBeforeStart: the time of an exit may be that of a guest.
func TestExitIsNotBeforeStart(t *testing.T) {
	start := time.Now()
	for at, want := range map[time.Time]time.Time{
		start.Add(time.Second): start.Add(time.Second), start.Add(-time.Second): start, time.Unix(1, 0): start,
	} {
		s := record.ContainerStatus{StartedAt: start}
		describeExit(&s, oci.Exit{At: at, Known: true}, startAttempt{})
		if !s.FinishedAt.Equal(want) {
			t.Errorf("an exit at %v of a start at %v is recorded at %v, want %v", at, start, s.FinishedAt, want)
		}
	}
}
