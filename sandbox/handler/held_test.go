package handler

import (
	"maps"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/record"
)

// namedRuntime is a runtime of which only the name and the readiness matter.
type namedRuntime struct {
	oci.Runtime
	name string
	err  error
}

func (r namedRuntime) Ready() error { return r.err }

// TestRetired: pods of a handler that is not configured any more share one runtime, which no new container gets.
func TestRetired(t *testing.T) {
	made := 0
	h := Set{NewRetired: func(name string) oci.Runtime {
		made++
		return namedRuntime{name: name}
	}}
	h.Replace(&Generation{
		Settings: &Settings{DefaultHandler: "runc"}, Runtimes: map[string]oci.Runtime{"runc": namedRuntime{}},
	})
	for range 2 {
		held := h.Hold(&record.Pod{Handler: "old"}, nil)
		if rt, err := held.Runtime(); err != nil || rt.(namedRuntime).name != "old" || made != 1 {
			t.Errorf("Runtime = %v, %v with %d runtimes made, want one of old", rt, err, made)
		}
		if _, err := held.Configured(); !errdefs.IsInvalidArgument(err) {
			t.Errorf("Configured = %v, want %v", err, errdefs.ErrInvalidArgument)
		}
	}
}

// TestHeldOutlivesItsGeneration: the first use of a pod after a restart of podd settles its handler, until the
// next one.
func TestHeldOutlivesItsGeneration(t *testing.T) {
	with := func(name, infra string) *Generation {
		return &Generation{
			Settings: &Settings{DefaultHandler: "runc", Handlers: map[string]Config{"runc": {Infra: infra}}},
			Runtimes: map[string]oci.Runtime{"runc": namedRuntime{name: name}},
		}
	}
	var h Set
	h.Replace(with("one", InfraNone))
	used, unused := h.Hold(&record.Pod{Handler: "runc"}, nil), h.Hold(&record.Pod{Handler: "runc"}, nil)
	if _, err := used.Runtime(); err != nil {
		t.Fatal(err)
	}
	h.Replace(with("two", InfraPause))
	for held, want := range map[*Held][2]string{used: {"one", InfraNone}, unused: {"two", InfraPause}} {
		rt, err := held.Runtime()
		if err != nil || rt.(namedRuntime).name != want[0] || held.Config().Infra != want[1] {
			t.Errorf("Runtime = %v, %v, Infra %q, want %v", rt, err, held.Config().Infra, want)
		}
	}
}

func TestAnnotations(t *testing.T) {
	config := podConfig("web")
	config.Annotations = map[string]string{
		"io.katacontainers.x": "1", "io.other": "2", "exact": "3", "exactly": "4", "default": "pod",
	}
	for name, tt := range map[string]struct {
		h    Config
		want map[string]string
	}{
		"none by default": {Config{}, nil},
		"allowed": {Config{AllowedAnnotations: []string{"io.katacontainers.*", "exact"}},
			map[string]string{"io.katacontainers.x": "1", "exact": "3"}},
		"default": {Config{DefaultAnnotations: map[string]string{"default": "node"}},
			map[string]string{"default": "node"}},
		"both": {
			Config{
				DefaultAnnotations: map[string]string{"default": "node"}, AllowedAnnotations: []string{"default"},
			},
			map[string]string{"default": "pod"},
		},
	} {
		var h Set
		h.Replace(&Generation{Settings: &Settings{Handlers: map[string]Config{"runc": tt.h}}})
		got := h.Hold(&record.Pod{Config: config, Handler: "runc"}, nil).Annotations()
		if !maps.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
}
