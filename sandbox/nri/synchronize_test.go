package nri

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
)

// disconnected waits until no plugin is connected.
func (n *node) disconnected(t *testing.T) {
	t.Helper()
	waitFor(t, "the plugin to be disconnected", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.connections == 0 && len(n.plugins) == 0
	})
}

// TestFailedSynchronisation: a plugin that does not know what runs is disconnected.
func TestFailedSynchronisation(t *testing.T) {
	end := make(chan struct{})
	defer close(end)
	for name, synchronize := range map[string]func() error{
		"error": func() error { return errors.New("I cannot") },
		"hangs": func() error { <-end; return nil },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, nil, func(c *Config) { c.RegistrationTimeout = 100 * time.Millisecond })
			n.connect(t, &testPlugin{synchronize: synchronize})
			n.disconnected(t)
		})
	}
}

// TestSplitSynchronisation: a plugin that takes the first part of the list for all of it is disconnected.
func TestSplitSynchronisation(t *testing.T) {
	engine := newFakeEngine()
	for i := range 30 {
		c := newContainer(fmt.Sprint("c", i), newPod(fmt.Sprint("p", i)))
		c.Config.Annotations = map[string]string{"large": strings.Repeat("x", 100_000)}
		engine.put(c)
	}
	n := newNode(t, engine, nil)
	(&oldPlugin{}).connect(t, n)
	n.disconnected(t)
}

// TestStatsAreBounded: plugins cannot make podd count calls of ever more names.
func TestStatsAreBounded(t *testing.T) {
	n := newNode(t, nil, nil)
	for i := range 3 * maxPlugins {
		n.statsOf(fmt.Sprint("10-", i))
	}
	if got := len(n.stats); got != maxPlugins+1 {
		t.Errorf("calls of %d names are counted, want %d and the others together", got, maxPlugins)
	}
}

// TestDescriptionsAreForPlugins: without plugins none is kept.
func TestDescriptionsAreForPlugins(t *testing.T) {
	n := newNode(t, nil, nil)
	kept := func(id string) *api.Container {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.containers[id].message
	}
	p := n.connect(t, &testPlugin{})
	if _, err := n.Create(t.Context(), newCreation("c1")); err != nil || kept("c1") == nil {
		t.Errorf("Create = %v, description %v, want one for the events", err, kept("c1"))
	}
	p.stub.Stop()
	n.disconnected(t)
	if _, err := n.Create(t.Context(), newCreation("c2")); err != nil {
		t.Fatal(err)
	}
	if kept("c1") != nil || kept("c2") != nil {
		t.Errorf("descriptions %v, %v are kept without plugins, want none", kept("c1"), kept("c2"))
	}
}
