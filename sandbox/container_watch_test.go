package sandbox

import (
	"testing"
	"time"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/record"
)

// TestOOMKilledIsOfTheEnd: out-of-memory kills that did not end the container are told in the message.
func TestOOMKilledIsOfTheEnd(t *testing.T) {
	for _, c := range []struct {
		exit   oci.Exit
		reason string
		told   bool
	}{
		{oci.Exit{Known: true, Code: 137, OOM: true, OOMKills: 1}, reasonOOMKilled, true},
		{oci.Exit{Known: true, Code: 1, OOM: true, OOMKills: 1}, reasonOOMKilled, true},
		{oci.Exit{Known: true, OOM: true, OOMKills: 1}, reasonCompleted, true},
		{oci.Exit{Known: true, Code: 143, OOMKills: 2}, reasonError, true},
		{oci.Exit{Known: true, Code: 137}, reasonError, false},
		{oci.Exit{Known: true, Code: 2, ForksRefused: 3}, reasonError, true},
		{oci.Exit{Known: true, ForksRefused: 3}, reasonCompleted, false},
		{oci.Exit{Known: true, Code: 143, ForksRefused: 3}, reasonError, false},
	} {
		var s record.ContainerStatus
		describeExit(&s, c.exit, startAttempt{}, "why")
		if want := s.Reason == reasonOOMKilled; want != (s.Message == "why") {
			t.Errorf("%+v: message %q, want the cause: %v", c.exit, s.Message, want)
		}
		if s.Reason != c.reason || c.told != (s.Message != "") {
			t.Errorf("%+v: reason %s, message %q, want %s, a message: %v", c.exit, s.Reason, s.Message, c.reason, c.told)
		}
	}
}

// TestExitIsNotBeforeStart: the time of an exit may be that of a guest.
func TestExitIsNotBeforeStart(t *testing.T) {
	start := time.Now()
	for at, want := range map[time.Time]time.Time{
		start.Add(time.Second): start.Add(time.Second), start.Add(-time.Second): start, time.Unix(1, 0): start,
	} {
		s := record.ContainerStatus{StartedAt: start}
		describeExit(&s, oci.Exit{At: at, Known: true}, startAttempt{}, "")
		if !s.FinishedAt.Equal(want) {
			t.Errorf("an exit at %v of a start at %v is recorded at %v, want %v", at, start, s.FinishedAt, want)
		}
	}
}
