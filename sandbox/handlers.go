package sandbox

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
)

// handlerNames returns the names of the configured handlers, the default one first, the others sorted.
func (e *Engine) handlerNames() []string {
	names := slices.Sorted(maps.Keys(e.Runtimes))
	i := slices.Index(names, e.cfg.DefaultHandler)
	return append([]string{e.cfg.DefaultHandler}, slices.Delete(names, i, i+1)...)
}

// deleteProcess has the pod's handler delete the container of that id. A handler that is not configured any more, but
// has left nothing either, does not keep a pod from being removed.
func (e *Engine) deleteProcess(ctx context.Context, p *Pod, id string) error {
	rt, err := e.runtime(p.Handler)
	if err == nil {
		return rt.Delete(ctx, id)
	}
	if _, lerr := os.Lstat(e.bundleDir(id)); errors.Is(lerr, fs.ErrNotExist) {
		return nil
	}
	return err
}
