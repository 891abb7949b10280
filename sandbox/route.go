package sandbox

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/convert"
)

// untrustedAnnotation requests a handler for untrusted workloads. As in containerd, such a pod gets no access to the
// node with any handler.
const untrustedAnnotation = "io.kubernetes.cri.untrusted-workload"

// route returns the handler of a pod: the one requested by a RuntimeClass, or else the one that the node's
// configuration selects by annotations of the pod or because it needs the node's kernel; "" for the default handler.
func (h *handlers) route(config *cri.PodSandboxConfig, requested string) (string, error) {
	if requested != "" {
		return requested, nil
	}
	annotation, err := h.routingAnnotation(config.GetAnnotations())
	if err != nil {
		return "", err
	}
	if annotation == untrustedAnnotation && convert.NeedsHost(config) {
		return "", fmt.Errorf("%w: a pod with annotation %s cannot be privileged nor use a namespace of the node",
			errdefs.ErrInvalidArgument, annotation)
	}
	if annotation != "" {
		return h.cfg.AnnotationHandlers[annotation], nil
	}
	if h.cfg.HostAccessHandler == "" || !convert.NeedsHost(config) {
		return "", nil
	}
	rt, err := h.find("")
	if err != nil || !rt.Features().OwnKernel {
		return "", err
	}
	return h.cfg.HostAccessHandler, nil
}

// checkPrivileged refuses a privileged container in a pod that the annotation for untrusted workloads has routed. The
// pod may have been created unprivileged: an ephemeral container can be added later.
func (h *handlers) checkPrivileged(p *Pod, config *cri.ContainerConfig) error {
	handler, routed := h.cfg.AnnotationHandlers[untrustedAnnotation]
	if !config.GetLinux().GetSecurityContext().GetPrivileged() || !routed || p.RequestedHandler != handler ||
		p.Config.GetAnnotations()[untrustedAnnotation] != "true" {
		return nil
	}
	return fmt.Errorf("%w: a container of a pod with annotation %s cannot be privileged",
		errdefs.ErrInvalidArgument, untrustedAnnotation)
}

// routingAnnotation returns the annotation that selects the pod's handler, "" when there is none. Two that select
// different handlers are errdefs.ErrInvalidArgument.
func (h *handlers) routingAnnotation(annotations map[string]string) (string, error) {
	found := ""
	for _, key := range slices.Sorted(maps.Keys(h.cfg.AnnotationHandlers)) {
		if annotations[key] != "true" {
			continue
		}
		if found != "" && h.cfg.AnnotationHandlers[found] != h.cfg.AnnotationHandlers[key] {
			return "", fmt.Errorf("%w: annotations %s and %s ask for different runtime handlers",
				errdefs.ErrInvalidArgument, found, key)
		}
		if found != untrustedAnnotation { // it takes precedence
			found = cmp.Or(found, key)
		}
		if key == untrustedAnnotation {
			found = key
		}
	}
	return found, nil
}
