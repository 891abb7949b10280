package image

import (
	"path/filepath"

	"go.podman.io/image/v5/types"

	"github.com/podd-project/podd/image/registry"
)

// systemContext configures containers/image. Left at the library's defaults are only the directories that a node's
// administrator knows: certificates and signature look-aside. Credentials of root's home, which are for a person, are
// not used for pods: the kubelet sends those of the pod, and auth_file has those of the node.
func (s *Store) systemContext() *types.SystemContext {
	return s.cfg().SystemContext(s.tempDir())
}

// tempDir is where layers are fetched to.
func (s *Store) tempDir() string {
	return filepath.Join(s.cfg().Root, registry.TempDir)
}
