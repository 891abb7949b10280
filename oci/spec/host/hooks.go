package host

import (
	"context"
	"fmt"
	"maps"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"go.podman.io/common/pkg/hooks"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// InjectHooks adds to s the hooks of the directories (oci-hooks(5)) whose conditions it meets. They see the annotations
// of the pod and of the container. Missing directories are skipped; a file that is not a hook is an error, which names
// it.
func InjectHooks(s *specs.Spec, dirs []string, pod *cri.PodSandboxConfig, c *cri.ContainerConfig) error {
	if len(dirs) == 0 {
		return nil
	}
	manager, err := hooks.New(context.Background(), dirs, nil) // reads files only
	if err != nil {
		return fmt.Errorf("read hooks_dirs: %w", err)
	}
	annotations := maps.Clone(pod.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	maps.Copy(annotations, c.GetAnnotations())
	if _, err := manager.Hooks(s, annotations, len(c.GetMounts()) > 0); err != nil {
		return fmt.Errorf("hooks_dirs: %w", err)
	}
	return nil
}
