package sandbox

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/sandbox/handler"
	"github.com/podd-project/podd/sandbox/record"
)

// TestReconfigure: new pods get the handlers of the new generation. A pod keeps the handler that it was created with,
// also one that is no longer configured.
func TestReconfigure(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	first, firstConfig := e.handlers.Current(), e.cfg.Load()
	old, err := e.RunPod(t.Context(), podConfig("old"), "other")
	must(t, err)
	next := *e.cfg.Load()
	next.KillTimeout = time.Hour
	next.Handlers = map[string]handler.Config{"fresh": {CNIConfDir: "/etc/fresh"}}
	runtimes := map[string]Runtime{"runc": first.Runtimes["runc"], "fresh": m.runtime(h, "vm")}
	must(t, e.Reconfigure(next, runtimes))
	if e.cfg.Load().KillTimeout != time.Hour || firstConfig.KillTimeout == time.Hour {
		t.Errorf("KillTimeout = %v, of the first generation %v, want 1h in the new one only",
			e.cfg.Load().KillTimeout, firstConfig.KillTimeout)
	}
	_, err = e.RunPod(t.Context(), podConfig("late"), "other")
	if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "fresh") {
		t.Errorf("RunPod with a removed handler = %v, want an invalid argument and the known ones", err)
	}
	fresh, err := e.RunPod(t.Context(), podConfig("new"), "fresh")
	must(t, err)
	requests := m.network.Requests()
	if got := requests[len(requests)-1].ConfDir; got != "/etc/fresh" {
		t.Errorf("CNI configuration directory of the new handler = %q, want /etc/fresh", got)
	}
	p, err := e.Pod(old)
	must(t, err)
	for name, find := range map[string]func() (Runtime, error){
		"Runtime": p.handler.Runtime, "Configured": p.handler.Configured,
	} {
		if rt, err := find(); err != nil || rt != first.Runtimes["other"] {
			t.Errorf("%s of the old pod = %v, %v, want the handler that it was created with", name, rt, err)
		}
	}
	must(t, e.RemovePod(t.Context(), old))
	must(t, e.RemovePod(t.Context(), fresh))
	noLeaks(t, m)
}

// TestPodKeepsTheConfigurationOfItsHandler: a reload between pod and container does not mix two generations.
func TestPodKeepsTheConfigurationOfItsHandler(t *testing.T) {
	e, _ := newEngine(t, newMachine(t))
	with := func(value string) {
		next := *e.cfg.Load()
		next.Handlers = map[string]handler.Config{"runc": {DefaultAnnotations: map[string]string{"generation": value}}}
		must(t, e.Reconfigure(next, maps.Clone(e.handlers.Current().Runtimes)))
	}
	with("one")
	id, err := e.RunPod(t.Context(), podConfig("web"), "")
	must(t, err)
	with("two")
	p, err := e.Pod(id)
	must(t, err)
	if got := p.handler.Annotations()["generation"]; got != "one" {
		t.Errorf("annotation of the pod's handler = %q, want one", got)
	}
	earlier := record.Pod{Config: podConfig("web"), Handler: "runc"}
	if got := e.handlers.Hold(&earlier, nil).Annotations()["generation"]; got != "two" {
		t.Errorf("annotation for a pod that was created before the restart = %q, want two", got)
	}
	must(t, e.RemovePod(t.Context(), id))
}

// TestReconfigureRefuses: a default handler that is not configured changes nothing.
func TestReconfigureRefuses(t *testing.T) {
	e, _ := newEngine(t, newMachine(t))
	before, config := e.handlers.Current(), e.cfg.Load()
	noDefault := *e.cfg.Load()
	noDefault.DefaultHandler = "absent"
	if err := e.Reconfigure(noDefault, before.Runtimes); err == nil || !strings.Contains(err.Error(), "absent") {
		t.Errorf("Reconfigure() = %v, want an error with the handler", err)
	}
	if e.handlers.Current() != before || e.cfg.Load() != config {
		t.Error("a refused configuration is in force")
	}
}
