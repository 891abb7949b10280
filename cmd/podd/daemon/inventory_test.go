package daemon

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/podd-project/podd/cmd/podd/settings"
	"github.com/podd-project/podd/oci"
)

// hangingProbe is a handler whose runtime does not answer.
type hangingProbe struct{}

func (hangingProbe) Probe(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func (hangingProbe) Features() oci.Features { return oci.Features{} }

// TestReportHandler: a runtime that does not answer is reported, unless podd has not waited for it: `podd check` and
// `podd wipe` may end first.
func TestReportHandler(t *testing.T) {
	for name, tt := range map[string]struct {
		ended bool
		want  string
	}{
		"the probe times out":        {want: "runtime handler is not ready"},
		"podd ends before the probe": {ended: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, lines := logtest.NewNullLogger()
				d := &daemon{cfg: settings.Default(), log: log}
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if tt.ended {
					cancel(errStopped)
				}
				d.reportHandler(ctx, &d.cfg.Runtime, "runc", "runc", hangingProbe{})
				var got []string
				for _, line := range lines.AllEntries() {
					got = append(got, line.Message)
				}
				if text := strings.Join(got, "\n"); text != tt.want {
					t.Errorf("logged %q, want %q", text, tt.want)
				}
			})
		})
	}
}
