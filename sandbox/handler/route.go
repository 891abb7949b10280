package handler

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/convert"
	"github.com/podd-project/podd/sandbox/record"
)

// UntrustedAnnotation requests a handler for untrusted workloads. As in containerd, such a pod gets no access to the
// node with any handler.
const UntrustedAnnotation = "io.kubernetes.cri.untrusted-workload"

// Route returns the handler of a pod: the one requested by a RuntimeClass, or else the one that the node's
// configuration selects by annotations of the pod or because it needs the node's kernel; "" for the default handler.
func (g *Generation) Route(config *cri.PodSandboxConfig, requested string) (string, error) {
	if requested != "" {
		return requested, nil
	}
	annotation, err := g.routingAnnotation(config.GetAnnotations())
	if err != nil {
		return "", err
	}
	if annotation == UntrustedAnnotation && convert.NeedsHost(config) {
		return "", fmt.Errorf("%w: a pod with annotation %s cannot be privileged nor use a namespace of the node",
			errdefs.ErrInvalidArgument, annotation)
	}
	if annotation != "" {
		return g.Settings.AnnotationHandlers[annotation], nil
	}
	if g.Settings.HostAccessHandler == "" || !convert.NeedsHost(config) {
		return "", nil
	}
	standard, err := g.Find("")
	if err != nil || !standard.Runtime.Features().OwnKernel {
		return "", err
	}
	return g.Settings.HostAccessHandler, nil
}

// CheckPrivileged refuses a privileged container in a pod that the annotation for untrusted workloads has routed. The
// pod may have been created unprivileged: an ephemeral container can be added later.
func (h *Set) CheckPrivileged(p record.Pod, config *cri.ContainerConfig) error {
	handler, routed := h.Current().Settings.AnnotationHandlers[UntrustedAnnotation]
	if !config.GetLinux().GetSecurityContext().GetPrivileged() || !routed || p.RequestedHandler != handler ||
		p.Config.GetAnnotations()[UntrustedAnnotation] != "true" {
		return nil
	}
	return fmt.Errorf("%w: a container of a pod with annotation %s cannot be privileged",
		errdefs.ErrInvalidArgument, UntrustedAnnotation)
}

// routingAnnotation returns the annotation that selects the pod's handler, "" when there is none. Two that select
// different handlers are errdefs.ErrInvalidArgument.
func (g *Generation) routingAnnotation(annotations map[string]string) (string, error) {
	found := ""
	for _, key := range slices.Sorted(maps.Keys(g.Settings.AnnotationHandlers)) {
		if annotations[key] != "true" {
			continue
		}
		if found != "" && g.Settings.AnnotationHandlers[found] != g.Settings.AnnotationHandlers[key] {
			return "", fmt.Errorf("%w: annotations %s and %s ask for different runtime handlers",
				errdefs.ErrInvalidArgument, found, key)
		}
		if found != UntrustedAnnotation { // it takes precedence
			found = cmp.Or(found, key)
		}
		if key == UntrustedAnnotation {
			found = key
		}
	}
	return found, nil
}
