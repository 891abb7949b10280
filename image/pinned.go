package image

import (
	"strings"

	"go.podman.io/storage"

	"github.com/podd-project/podd/image/registry"
)

// pinned reports whether the kubelet must not remove an image: it was preloaded, or one of its names matches a glob.
func (s *Store) pinned(img *storage.Image) bool {
	if s.preloaded.has(img.ID) {
		return true
	}
	for _, name := range img.Names {
		for _, glob := range s.cfg().Pinned {
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
