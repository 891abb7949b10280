package handler

import (
	"cmp"
	"maps"

	"github.com/podd-project/podd/sandbox/record"
)

// Config returns the configuration of p's handler.
func (h *Set) Config(p record.Pod) Config {
	return h.Settings.Handlers[cmp.Or(p.Handler(), h.Settings.DefaultHandler)]
}

// Annotations returns the annotations that p's handler receives with p's containers.
func (h *Set) Annotations(p record.Pod) map[string]string {
	cfg := h.Config(p)
	if len(cfg.AllowedAnnotations) == 0 && len(cfg.DefaultAnnotations) == 0 {
		return nil
	}
	annotations := maps.Clone(cfg.DefaultAnnotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	for key, value := range p.Config.GetAnnotations() {
		if cfg.allows(key) {
			annotations[key] = value
		}
	}
	return annotations
}
