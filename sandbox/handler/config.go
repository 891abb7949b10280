package handler

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/spec"
	"github.com/podd-project/podd/sandbox/convert"
)

// Config configures a handler, in addition to the handler's own reports.
type Config struct {
	// CNIConfDir is the CNI configuration directory of its pods, "" for the default.
	CNIConfDir string
	// Infra selects the pods that have an infra container: one of InfraAuto, InfraNone, InfraPause.
	Infra string
	// PrivilegedWithoutHostDevices is "true" if privileged containers do not get the node's devices, "false" if they
	// do, and "" or "auto" for "true" if the handler has a separate kernel, which does not have these devices.
	PrivilegedWithoutHostDevices string
	// WritableCgroups is spec.Input.WritableCgroups of its containers.
	WritableCgroups bool
	// Base has defaults of its containers, see spec.Defaults; nil for none.
	Base *specs.Spec
	// AllowedAnnotations are the pod annotations that are passed to the runtime: names, or prefixes that end in *. None
	// by default, because runtimes treat annotations as configuration.
	AllowedAnnotations []string
	// DefaultAnnotations are passed to the runtime with every container; allowed ones of the pod override them.
	DefaultAnnotations map[string]string
}

// Values of Config.Infra; "" is InfraAuto.
const (
	InfraAuto  = "auto"  // pods that need one: those that share a PID namespace, all of a handler with its own kernel
	InfraNone  = "none"  // none but those that share a PID namespace
	InfraPause = "pause" // all
)

// HostDevices reports whether privileged containers get the node's devices.
func (h Config) HostDevices(f oci.Features) bool {
	without := h.PrivilegedWithoutHostDevices
	return without == "false" || without != "true" && !f.OwnKernel
}

// reserved is why an annotation cannot be configured.
const reserved = "%q is reserved: podd sets it, or it makes a runtime use files of the node"

// Validate reports each wrong key.
func (h Config) Validate(problem func(key string, err error)) {
	switch h.Infra {
	case "", InfraAuto, InfraNone, InfraPause:
	default:
		problem("infra", fmt.Errorf("%q must be auto, none or pause", h.Infra))
	}
	if v := h.PrivilegedWithoutHostDevices; !slices.Contains([]string{"", "auto", "true", "false"}, v) {
		problem("privileged_without_host_devices", fmt.Errorf("%q must be auto, true or false", v))
	}
	for _, pattern := range h.AllowedAnnotations {
		if name := strings.TrimSuffix(pattern, "*"); name == "" || strings.Contains(name, "*") {
			problem("allowed_annotations",
				fmt.Errorf("%q is neither an annotation name nor a prefix followed by *", pattern))
		} else if spec.ReservedAnnotation(name) {
			problem("allowed_annotations", fmt.Errorf(reserved, pattern))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(h.DefaultAnnotations)) {
		if key == "" || spec.ReservedAnnotation(key) {
			problem("default_annotations."+strconv.Quote(key), fmt.Errorf(reserved, key))
		}
	}
}

// NeedsInfra reports whether a pod gets an infra container. It returns errdefs.ErrInvalidArgument for a pod that the
// handler cannot run.
func (h Config) NeedsInfra(config *cri.PodSandboxConfig, f oci.Features) (bool, error) {
	if f.OwnKernel && (convert.SharesProcesses(config) || convert.HostNetwork(config) && !f.HostNetwork) {
		return false, fmt.Errorf("%w: its containers have a kernel of their own, a pod cannot use the network, PID or IPC "+
			"namespace of the node (gVisor can use the network, with options.%s = %q)",
			errdefs.ErrInvalidArgument, oci.NetworkOption, oci.HostNetworkOption)
	}
	switch h.Infra {
	case InfraPause:
		return true, nil
	case InfraNone:
		return convert.SharesPID(config), nil
	}
	return convert.SharesPID(config) || f.OwnKernel, nil
}

func (h Config) allows(key string) bool {
	for _, pattern := range h.AllowedAnnotations {
		prefix, open := strings.CutSuffix(pattern, "*")
		if key == pattern || open && strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}
