package image

import (
	"strings"

	"go.podman.io/storage"
)

// pinned says whether the kubelet must leave an image alone: it was preloaded, or one of its names fits a glob.
func (s *Store) pinned(img *storage.Image) bool {
	if s.preloaded.has(img.ID) {
		return true
	}
	for _, name := range img.Names {
		for _, glob := range s.cfg.Pinned {
			if globMatch(glob, name) || globMatch(glob, repository(name)) {
				return true
			}
		}
	}
	return false
}

// globMatch says whether all of s fits glob, where * stands for any characters, none and slashes included.
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
