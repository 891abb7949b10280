package sandbox

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// untrustedAnnotation asks for a handler for workloads that nobody vouches for. As in containerd, such a pod gets no
// access to the node, whatever its handler.
const untrustedAnnotation = "io.kubernetes.cri.untrusted-workload"

// route chooses the handler of a pod. What was asked for by a RuntimeClass is what the pod gets. Without one, the
// node's configuration may choose by annotations of the pod, and by whether it needs the node's own kernel. The
// answer is "" for the default handler.
func (e *Engine) route(config *cri.PodSandboxConfig, asked string) (string, error) {
	if asked != "" {
		return asked, nil
	}
	annotation, err := e.routingAnnotation(config.GetAnnotations())
	if err != nil {
		return "", err
	}
	if annotation == untrustedAnnotation && needsHost(config) {
		return "", fmt.Errorf("%w: a pod with annotation %s cannot be privileged nor use a namespace of the node", errdefs.ErrInvalidArgument, annotation)
	}
	if annotation != "" {
		return e.cfg.AnnotationHandlers[annotation], nil
	}
	if e.cfg.HostAccessHandler == "" || !needsHost(config) {
		return "", nil
	}
	rt, err := e.runtime("")
	if err != nil || !rt.Features().OwnKernel {
		return "", err
	}
	return e.cfg.HostAccessHandler, nil
}

// routingAnnotation finds the annotation that chooses the pod's handler, "" when there is none. Two that choose
// different handlers are a mistake.
func (e *Engine) routingAnnotation(annotations map[string]string) (string, error) {
	found := ""
	for _, key := range slices.Sorted(maps.Keys(e.cfg.AnnotationHandlers)) {
		if annotations[key] != "true" {
			continue
		}
		if found != "" && e.cfg.AnnotationHandlers[found] != e.cfg.AnnotationHandlers[key] {
			return "", fmt.Errorf("%w: annotations %s and %s ask for different runtime handlers", errdefs.ErrInvalidArgument, found, key)
		}
		if found != untrustedAnnotation { // which says more than the others
			found = cmp.Or(found, key)
		}
		if key == untrustedAnnotation {
			found = key
		}
	}
	return found, nil
}

// needsHost is true for a pod that gets at the node itself: one that a sandbox cannot serve, or not as it is meant.
func needsHost(config *cri.PodSandboxConfig) bool {
	return config.GetLinux().GetSecurityContext().GetPrivileged() || usesHost(config)
}
