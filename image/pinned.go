package image

import (
	"strings"

	"github.com/podd-project/podd/image/registry"
)

// matchesGlob reports whether one of an image's names matches one of the globs of Config.Pinned.
func matchesGlob(names, globs []string) bool {
	for _, name := range names {
		for _, glob := range globs {
			if globMatch(glob, name) || globMatch(glob, registry.Repository(name)) {
				return true
			}
		}
	}
	return false
}

// globMatch reports whether all of s matches glob, where * matches any characters, none and slashes included.
func globMatch(glob, s string) bool {
	parts := strings.Split(glob, "*")
	if len(parts) == 1 {
		return glob == s
	}
	s, ok := strings.CutPrefix(s, parts[0])
	if !ok {
		return false
	}
	last := len(parts) - 1
	for _, part := range parts[1:last] {
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s = s[i+len(part):]
	}
	return strings.HasSuffix(s, parts[last])
}
