package daemon

import (
	"testing"

	"github.com/sirupsen/logrus/hooks/test"

	"github.com/podd-project/podd/cmd/podd/history"
	"github.com/podd-project/podd/cmd/podd/metrics"
	"github.com/podd-project/podd/cmd/podd/settings"
	"github.com/podd-project/podd/cmd/podd/tracing"
	"github.com/podd-project/podd/sandbox/operation"
)

// observing returns a daemon with a root directory of its own.
func observing(t *testing.T) *daemon {
	log, _ := test.NewNullLogger()
	d := &daemon{cfg: settings.Default(), log: log}
	d.cfg.Root = t.TempDir()
	return d
}

// TestObserversByDefault: operations are kept in the history, which survives the daemon, and measured.
func TestObserversByDefault(t *testing.T) {
	d := observing(t)
	o := d.newObservers()
	if o.metrics == nil || o.call() == nil || o.grpcOptions() != nil || len(d.closers) != 1 {
		t.Errorf("observers = %+v with %d closers, want the history and metrics", o, len(d.closers))
	}
	o.operation()(t.Context(), operation.Operation{Verb: "X"})
	if err := d.undoStart(); err != nil {
		t.Error(err)
	}
	found, err := history.Read(history.Dir(d.cfg.Root), history.Query{Limit: 10})
	if err != nil || len(found) != 1 || found[0].Verb != "X" {
		t.Errorf("history = %+v, %v, want operation X", found, err)
	}
	if (observers{}).operation() != nil {
		t.Error("a command that does not serve observes operations, want nil")
	}
}

func TestObservers(t *testing.T) {
	for _, c := range []struct {
		metrics, endpoint string
		call              bool
		options, closers  int
	}{
		{"127.0.0.1:9478", "", true, 0, 1},
		{"", "http://127.0.0.1:4317", false, 1, 2},
		{"127.0.0.1:9478", "http://127.0.0.1:4317", true, 1, 2},
	} {
		d := observing(t)
		d.cfg.Metrics, d.cfg.Tracing = metrics.Config{Address: c.metrics}, tracing.Config{Endpoint: c.endpoint}
		o := d.newObservers()
		o.operation()(t.Context(), operation.Operation{Verb: "X"})
		if (o.call() != nil) != c.call || len(o.grpcOptions()) != c.options || len(d.closers) != c.closers {
			t.Errorf("observers = %+v with %d closers, want %+v", o, len(d.closers), c)
		}
		if err := d.undoStart(); err != nil {
			t.Error(err)
		}
	}
}

// TestTracingThatCannotBeSetUp: podd runs without it.
func TestTracingThatCannotBeSetUp(t *testing.T) {
	d := observing(t)
	d.cfg.Tracing = tracing.Config{Endpoint: "http://127.0.0.1:4317", HeadersFile: "/nonexistent"}
	if o := d.newObservers(); o.tracer != nil || o.history == nil {
		t.Errorf("observers = %+v, want the history and no tracer", o)
	}
	if err := d.undoStart(); err != nil {
		t.Error(err)
	}
}
