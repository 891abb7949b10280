package daemon

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/sirupsen/logrus/hooks/test"

	"github.com/podd-project/podd/cmd/podd/settings"
	"github.com/podd-project/podd/cmd/podd/state"
)

// TestStopDuringStart: a daemon that is stopped before it serves returns no error.
func TestStopDuringStart(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	log, hook := test.NewNullLogger()
	dir, c := t.TempDir(), settings.Default()
	c.Root, c.Run = filepath.Join(dir, "root"), filepath.Join(dir, "run")
	c.Listen = filepath.Join(dir, "run", "podd.sock")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errStopped)
	d := &daemon{cfg: c, log: log}
	if err := d.run(ctx); err != nil {
		t.Errorf("run() = %v, want nil", err)
	}
	if e := hook.LastEntry(); e == nil || e.Message != "stopped during the start" {
		t.Errorf("last log entry = %+v, want stopped during the start", e)
	}
	if _, err := os.Lstat(c.Listen); !os.IsNotExist(err) {
		t.Errorf("Lstat(socket) = %v, want not exist", err)
	}
	if st, err := state.Open(c.Root, c.Run, "", log); err != nil {
		t.Errorf("state.Open() = %v, want nil: the lock must be released", err)
	} else if err := st.Close(); err != nil {
		t.Error(err)
	}
}

// TestUnitWaitsForTheStop: systemd gives podd more time to stop than podd takes.
func TestUnitWaitsForTheStop(t *testing.T) {
	unit, err := os.ReadFile("../../../contrib/systemd/podd.service")
	if err != nil {
		t.Fatal(err)
	}
	var stop int
	if m := regexp.MustCompile(`\nTimeoutStopSec=(\d+)s`).FindSubmatch(unit); m != nil {
		fmt.Sscan(string(m[1]), &stop)
	}
	if limit := (drainTimeout + closeTimeout).Seconds(); float64(stop) <= limit {
		t.Errorf("TimeoutStopSec = %d, want more than the %v s that podd may take", stop, limit)
	}
}
