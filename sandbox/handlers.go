package sandbox

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
)

// handlerNames returns the names of the configured handlers, the default one first, the others sorted.
func (e *Engine) handlerNames() []string {
	names := slices.Sorted(maps.Keys(e.Runtimes))
	i := slices.Index(names, e.cfg.DefaultHandler)
	return append([]string{e.cfg.DefaultHandler}, slices.Delete(names, i, i+1)...)
}

// former makes runtimes for handlers that are not configured any more, each once: a runtime knows who waits in it.
type former struct {
	make func(handler string) Runtime

	mu   sync.Mutex // guards made
	made map[string]Runtime
}

func (f *former) runtime(handler string) Runtime {
	if f.make == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	rt := f.made[handler]
	if rt == nil {
		if f.made == nil {
			f.made = map[string]Runtime{}
		}
		rt = f.make(handler)
		f.made[handler] = rt
	}
	return rt
}

// runtimeOf finds the handler that p was made with: its containers are watched, stopped and deleted also when that is
// not configured any more.
func (e *Engine) runtimeOf(p *Pod) (Runtime, error) {
	rt, err := e.runtime(p.Handler())
	if err == nil {
		return rt, nil
	}
	if rt := e.former.runtime(p.Handler()); rt != nil {
		return rt, nil
	}
	return nil, err
}

// deleteProcess has the pod's handler delete the container of that id. A handler that is not configured any more, but
// has left nothing either, does not keep a pod from being removed.
func (e *Engine) deleteProcess(ctx context.Context, p *Pod, id string) error {
	rt, err := e.runtimeOf(p)
	if err == nil {
		return rt.Delete(ctx, id)
	}
	if _, lerr := os.Lstat(e.bundleDir(id)); errors.Is(lerr, fs.ErrNotExist) {
		return nil
	}
	return err
}
