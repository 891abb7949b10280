package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/containerd/errdefs"
)

// handlers finds the runtimes of pods.
type handlers struct {
	cfg      *Config
	runtimes map[string]Runtime
	// newRetired, if set, makes a runtime for a handler that is no longer configured.
	newRetired func(handler string) Runtime

	mu sync.Mutex // guards retired
	// retired holds one runtime per handler: a runtime tracks the calls that wait in it.
	retired map[string]Runtime
}

// names returns the names of the configured handlers, the default one first, the others sorted.
func (h *handlers) names() []string {
	names := slices.Sorted(maps.Keys(h.runtimes))
	i := slices.Index(names, h.cfg.DefaultHandler)
	return append([]string{h.cfg.DefaultHandler}, slices.Delete(names, i, i+1)...)
}

func (h *handlers) list() []Handler {
	list := make([]Handler, 0, len(h.runtimes))
	for _, name := range h.names() {
		rt := h.runtimes[name]
		list = append(list, Handler{
			Name: name, Default: name == h.cfg.DefaultHandler, Err: rt.Ready(), Features: rt.Features(),
		})
	}
	return list
}

// find returns a configured handler, the default one for "".
func (h *handlers) find(name string) (Runtime, error) {
	if name == "" {
		name = h.cfg.DefaultHandler
	}
	rt, ok := h.runtimes[name]
	if !ok {
		return nil, fmt.Errorf("%w: no runtime handler %q is configured, known are %v",
			errdefs.ErrInvalidArgument, name, h.names())
	}
	return rt, nil
}

// of returns the handler that p was created with, also when it is no longer configured: its containers are still
// watched, stopped and deleted.
func (h *handlers) of(p *Pod) (Runtime, error) {
	rt, err := h.find(p.Handler())
	if err == nil || h.newRetired == nil {
		return rt, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if rt := h.retired[p.Handler()]; rt != nil {
		return rt, nil
	}
	if h.retired == nil {
		h.retired = map[string]Runtime{}
	}
	rt = h.newRetired(p.Handler())
	if rt == nil {
		return nil, err
	}
	h.retired[p.Handler()] = rt
	return rt, nil
}

// deleteProcess deletes the container of that id by the pod's handler. A handler that is no longer configured does not
// keep a pod from being removed if no bundle is left.
func (e *Engine) deleteProcess(ctx context.Context, p *Pod, id string) error {
	rt, err := e.handlers.of(p)
	if err == nil {
		return rt.Delete(ctx, id)
	}
	if _, lerr := os.Lstat(e.paths.Bundle(id)); errors.Is(lerr, fs.ErrNotExist) {
		return nil
	}
	return err
}
