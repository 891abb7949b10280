package shim

import (
	"os"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/oci/process"
)

// TestEachCallTrimsTheLog: the log of a shim that prints without end is trimmed by whatever reaches the shim, as the
// kubelet's queries of the usage do, not by commands only.
func TestEachCallTrimsTheLog(t *testing.T) {
	r := New(Config{Name: "test", RunDir: t.TempDir(), Root: t.TempDir(), Log: logrus.New()})
	b, err := r.bundle("pod")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(b.Dir(), 0o700); err != nil {
		t.Fatal(err)
	}
	self, err := process.Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.save(record{Owner: "pod", Init: self}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.log(), make([]byte, 2*logLimit), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Usage(t.Context(), "pod"); err == nil {
		t.Error("Usage without a shim = nil, want an error")
	}
	info, err := os.Stat(b.log())
	if err != nil || info.Size() > logLimit {
		t.Errorf("the log: %v, %v, want at most %d bytes", info, err, logLimit)
	}
}
