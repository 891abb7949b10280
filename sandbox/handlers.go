package sandbox

import (
	"maps"
	"slices"
)

// handlerNames returns the names of the configured handlers, the default one first, the others sorted.
func (e *Engine) handlerNames() []string {
	names := slices.Sorted(maps.Keys(e.Runtimes))
	i := slices.Index(names, e.cfg.DefaultHandler)
	return append([]string{e.cfg.DefaultHandler}, slices.Delete(names, i, i+1)...)
}
