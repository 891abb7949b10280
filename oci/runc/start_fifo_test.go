package runc

import (
	"fmt"
	"testing"

	"github.com/podd-project/podd/oci/runc/starter"
)

// startedBy returns a handler with a starter, and a runtime of that version.
func startedBy(version string) *Runtime {
	r := ofVersion(version)
	r.cfg.Starter = "/libexec/starter"
	return r
}

// TestRecordOfEarlierPodd: a record that does not say how the container is started leaves that to the runtime.
func TestRecordOfEarlierPodd(t *testing.T) {
	r := startedBy("runc version 1.5.2")
	b, err := r.bundle("c")
	if err != nil {
		t.Fatal(err)
	}
	for rec, want := range map[*record]error{{}: starter.ErrNoFIFO, {Start: starter.Read}: starter.ErrNoFIFO} {
		if waits, err := r.waits(b, *rec); waits || fmt.Sprint(err) != fmt.Sprint(want) {
			t.Errorf("waits = %v, %v, want false, %v", waits, err, want)
		}
	}
}
