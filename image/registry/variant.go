package registry

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Variant returns the annotations that select an image.
func (c Config) Variant(annotations map[string]string) map[string]string {
	var kept map[string]string
	for _, key := range c.VariantAnnotations {
		if value, ok := annotations[key]; ok {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[key] = value
		}
	}
	return kept
}

// VariantKey encodes a variant as one comparable string.
func VariantKey(variant map[string]string) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(variant)) {
		fmt.Fprintf(&b, "%q=%q ", key, variant[key])
	}
	return b.String()
}
