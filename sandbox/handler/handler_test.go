package handler

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci"
)

func TestGeneration(t *testing.T) {
	g := Generation{
		Settings: &Settings{DefaultHandler: "runc", Handlers: map[string]Config{"a": {Infra: InfraPause}}},
		Runtimes: map[string]oci.Runtime{"runc": namedRuntime{}, "a": namedRuntime{name: "a"}, "z": namedRuntime{}},
	}
	if got, want := g.Names(), []string{"runc", "a", "z"}; !slices.Equal(got, want) {
		t.Errorf("Names = %q, want %q", got, want)
	}
	if _, err := g.Find("old"); !errdefs.IsInvalidArgument(err) {
		t.Errorf("Find(old) = %v, want %v", err, errdefs.ErrInvalidArgument)
	}
	if c, err := g.Find(""); err != nil || c.Name != "runc" || c.Requested != "" {
		t.Errorf("Find() = %+v, %v, want the default handler", c, err)
	}
	c, err := g.Find("a")
	if err != nil || c.Requested != "a" || c.Config.Infra != InfraPause || c.Runtime != g.Runtimes["a"] {
		t.Errorf("Find(a) = %+v, %v, want it with its runtime and configuration", c, err)
	}
	g.Settings.DefaultHandler = "absent"
	if err := g.Check(); err == nil || !strings.Contains(err.Error(), "absent") {
		t.Errorf("Check = %v, want an error that names the default handler", err)
	}
}

// TestAuto: with "auto", pods that request no handler get crun while it can be used, otherwise runc.
func TestAuto(t *testing.T) {
	missing := errors.New("no such program")
	type runtimes map[string]oci.Runtime
	usable := namedRuntime{}
	for name, tt := range map[string]struct {
		runtimes runtimes
		want     []string
	}{
		"both":           {runtimes{"runc": usable, "crun": usable, "a": usable}, []string{"crun", "a", "runc"}},
		"crun not ready": {runtimes{"runc": usable, "crun": namedRuntime{err: missing}}, []string{"runc", "crun"}},
		"no crun":        {runtimes{"runc": usable}, []string{"runc"}},
	} {
		g := Generation{Settings: &Settings{DefaultHandler: Auto}, Runtimes: tt.runtimes}
		if err := g.Check(); err != nil {
			t.Errorf("%s: Check = %v, want success", name, err)
		}
		if got := g.Names(); !slices.Equal(got, tt.want) {
			t.Errorf("%s: Names = %q, want %q", name, got, tt.want)
		}
		if c, err := g.Find(""); err != nil || c.Name != tt.want[0] || c.Requested != "" {
			t.Errorf("%s: Find() = %+v, %v, want %s", name, c, err, tt.want[0])
		}
	}
	g := Generation{Settings: &Settings{DefaultHandler: Auto}, Runtimes: runtimes{"crun": usable}}
	if err := g.Check(); err == nil || !strings.Contains(err.Error(), "runc") {
		t.Errorf("Check without runc = %v, want an error that names it: crun can become unusable", err)
	}
}

// TestChoose: a new pod gets one generation's name, runtime and configuration, of a handler that is ready.
func TestChoose(t *testing.T) {
	var h Set
	h.Replace(&Generation{
		Settings: &Settings{
			DefaultHandler: "runc", AnnotationHandlers: map[string]string{"example.org/sandboxed": "vm"},
			Handlers: map[string]Config{"vm": {Infra: InfraPause}},
		},
		Runtimes: map[string]oci.Runtime{
			"runc": namedRuntime{name: "runc"}, "vm": namedRuntime{name: "vm"},
			"broken": namedRuntime{name: "broken", err: errors.New("no such program")},
		},
	})
	annotated := podConfig("web")
	annotated.Annotations = map[string]string{"example.org/sandboxed": "true"}
	for _, tt := range []struct {
		config          *cri.PodSandboxConfig
		asked           string
		requested, name string
		infra           string
		failed          func(error) bool
	}{
		{config: podConfig("web"), name: "runc"},
		{config: podConfig("web"), asked: "runc", requested: "runc", name: "runc"},
		{config: annotated, requested: "vm", name: "vm", infra: InfraPause},
		{config: annotated, asked: "runc", requested: "runc", name: "runc"},
		{config: podConfig("web"), asked: "absent", failed: errdefs.IsInvalidArgument},
		{config: podConfig("web"), asked: "broken", failed: errdefs.IsUnavailable},
	} {
		c, err := h.Choose(tt.config, tt.asked)
		if tt.failed != nil {
			if c != nil || !tt.failed(err) {
				t.Errorf("Choose(%q) = %v, %v, want another error", tt.asked, c, err)
			}
			continue
		}
		if err != nil || c.Requested != tt.requested || c.Name != tt.name || c.Config.Infra != tt.infra ||
			c.Runtime.(namedRuntime).name != tt.name {
			t.Errorf("Choose(%q) = %+v, %v, want %+v", tt.asked, c, err, tt)
		}
	}
}
