package spec

import (
	"strconv"
	"strings"
)

// The annotations of config.json, for people and tools that read bundles. Runtimes take annotations for
// configuration, so nothing that a pod or an image says becomes one, but for those annotations of the pod that the
// handler's configuration names: labels of an image that did were CVE-2026-53488.
const (
	annotationKind         = "io.podd.kind" // "container" or "infra"
	annotationContainer    = "io.podd.container.name"
	annotationPodName      = "io.podd.pod.name"
	annotationPodNamespace = "io.podd.pod.namespace"
	annotationPodUID       = "io.podd.pod.uid"
)

func (b *builder) annotations() error { return b.annotate("container") }

// The annotations by which a runtime whose containers share a sandbox knows what belongs together. containerd made
// them; gVisor and Kata read them.
const (
	criType         = "io.kubernetes.cri.container-type" // "sandbox" or "container"
	criSandbox      = "io.kubernetes.cri.sandbox-id"
	criContainer    = "io.kubernetes.cri.container-name"
	criPodName      = "io.kubernetes.cri.sandbox-name"
	criPodNamespace = "io.kubernetes.cri.sandbox-namespace"
	criPodUID       = "io.kubernetes.cri.sandbox-uid"
	// What all containers of the pod may use together, for runtimes that make a machine of that size.
	criCPUPeriod = "io.kubernetes.cri.sandbox-cpu-period"
	criCPUQuota  = "io.kubernetes.cri.sandbox-cpu-quota"
	criCPUShares = "io.kubernetes.cri.sandbox-cpu-shares"
	criMemory    = "io.kubernetes.cri.sandbox-memory"
)

// ReservedAnnotation tells whether an annotation of that key is podd's to write: no pod may say in which sandbox a
// container runs.
func ReservedAnnotation(key string) bool {
	return strings.HasPrefix(key, "io.kubernetes.cri.") || strings.HasPrefix(key, "io.kubernetes.cri-o.") ||
		strings.HasPrefix(key, "io.podd.")
}

// sizing tells how large the pod is. The overhead is not in it: the runtime knows what it needs itself, and the kubelet
// has counted it into the control group of the pod.
func (b *builder) sizing(list map[string]string) {
	r := b.in.Pod.GetLinux().GetResources()
	for key, value := range map[string]int64{
		criCPUPeriod: r.GetCpuPeriod(), criCPUQuota: r.GetCpuQuota(), criCPUShares: r.GetCpuShares(),
		criMemory: r.GetMemoryLimitInBytes(),
	} {
		if value > 0 {
			list[key] = strconv.FormatInt(value, 10)
		}
	}
}

func (b *builder) annotate(kind string) error {
	pod := b.in.Pod.GetMetadata()
	list := map[string]string{
		annotationKind:         kind,
		annotationContainer:    b.in.Config.GetMetadata().GetName(),
		annotationPodName:      pod.GetName(),
		annotationPodNamespace: pod.GetNamespace(),
		annotationPodUID:       pod.GetUid(),
	}
	if b.in.Handler.OwnKernel {
		list[criType], list[criSandbox] = "container", b.in.Sandbox
		if kind == "infra" {
			list[criType] = "sandbox"
			b.sizing(list)
		}
		list[criContainer] = b.in.Config.GetMetadata().GetName()
		list[criPodName], list[criPodNamespace], list[criPodUID] = pod.GetName(), pod.GetNamespace(), pod.GetUid()
	}
	for key, value := range b.in.Annotations {
		if !ReservedAnnotation(key) {
			list[key] = value
		}
	}
	for key, value := range list {
		if value == "" {
			delete(list, key)
		}
		if err := text(key, value); err != nil {
			return err
		}
	}
	b.spec.Annotations = list
	return nil
}
