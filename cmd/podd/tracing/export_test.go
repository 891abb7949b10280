package tracing

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// checkSpans compares the outcomes of spans; those that are not in want must be 0.
func checkSpans(t *testing.T, tr *Tracer, want map[string]uint64) {
	t.Helper()
	got := tr.Spans()
	maps.DeleteFunc(got, func(_ string, n uint64) bool { return n == 0 })
	if !maps.Equal(got, want) {
		t.Errorf("Spans() = %v, want %v", got, want)
	}
}

// emit ends a span of that name.
func emit(tr *Tracer, name string) {
	_, span := tr.tracer.Start(context.Background(), name)
	span.End()
}

// TestOutcomesOfSpans: the spans that a collector takes, rejects, does not answer for, and does not get are counted,
// and the log says why.
func TestOutcomesOfSpans(t *testing.T) {
	t.Run("sent", func(t *testing.T) {
		r := &receiver{}
		tr, log := tracer(t, Config{Endpoint: listen(t, r), SamplingRatePerMillion: million})
		emit(tr, "one")
		emit(tr, "two")
		flush(t, tr)
		checkSpans(t, tr, map[string]uint64{"sent": 2})
		if log.Len() > 0 {
			t.Errorf("logged %q, want nothing", log)
		}
	})
	t.Run("rejected", func(t *testing.T) {
		tr, log := tracer(t, Config{Endpoint: listen(t, &receiver{rejects: 2}), SamplingRatePerMillion: million})
		for _, name := range []string{"one", "two", "three"} {
			emit(tr, name)
		}
		flush(t, tr)
		checkSpans(t, tr, map[string]uint64{"sent": 1, "rejected": 2})
		if !strings.Contains(log.String(), "partial success: full (2 spans rejected)") {
			t.Errorf("log %q, want that the collector rejected spans, and why", log)
		}
	})
	t.Run("failed", func(t *testing.T) {
		refuse := func(context.Context) error { return status.Error(codes.PermissionDenied, "no") }
		tr, _ := tracer(t, Config{Endpoint: listen(t, &receiver{answer: refuse}), SamplingRatePerMillion: million})
		emit(tr, "one")
		emit(tr, "two")
		flush(t, tr)
		checkSpans(t, tr, map[string]uint64{"failed": 2})
	})
	t.Run("dropped", func(t *testing.T) {
		hang := make(chan struct{})
		tr, _ := tracer(t, Config{Endpoint: listen(t, &receiver{answer: func(context.Context) error {
			<-hang
			return errors.New("too late")
		}}), SamplingRatePerMillion: million})
		for end := time.Now().Add(10 * time.Second); tr.Spans()["dropped"] == 0 && time.Now().Before(end); {
			emit(tr, "x")
		}
		if tr.Spans()["dropped"] == 0 {
			t.Error("no span was dropped, want some")
		}
		close(hang)
		flush(t, tr)
	})
}

// TestGzip: the collector gets compressed requests only if they are configured.
func TestGzip(t *testing.T) {
	for compression, want := range map[string]string{"": "", "gzip": "gzip"} {
		r := &receiver{}
		tr, _ := tracer(t, Config{Endpoint: listen(t, r), SamplingRatePerMillion: million, Compression: compression})
		emit(tr, "one")
		flush(t, tr)
		if len(r.all(t)) != 1 || len(r.encodings) != 1 || r.encodings[0] != want {
			t.Errorf("compression %q: %d spans, encodings %q, want 1 and %q", compression, len(r.all(t)), r.encodings, want)
		}
	}
}
