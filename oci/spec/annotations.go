package spec

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The annotations of config.json, for people and tools that read bundles. Runtimes read annotations as configuration.
// Therefore no label of an image becomes one (CVE-2026-53488), and of a pod's annotations only those that the handler's
// configuration names.
const (
	annotationKind         = "io.podd.kind" // "container" or "infra"
	annotationContainer    = "io.podd.container.name"
	annotationPodName      = "io.podd.pod.name"
	annotationPodNamespace = "io.podd.pod.namespace"
	annotationPodUID       = "io.podd.pod.uid"
)

func (b *builder) annotations() error { return b.annotate("container") }

// The annotations that containerd defined. Runtimes with a kernel of their own assign containers to a sandbox by them
// (gVisor, Kata); tools that find containers by their config.json read whose they are (Inspektor Gadget).
const (
	criType         = "io.kubernetes.cri.container-type" // "sandbox" or "container"
	criSandbox      = "io.kubernetes.cri.sandbox-id"
	criContainer    = "io.kubernetes.cri.container-name"
	criPodName      = "io.kubernetes.cri.sandbox-name"
	criPodNamespace = "io.kubernetes.cri.sandbox-namespace"
	criPodUID       = "io.kubernetes.cri.sandbox-uid"
	criImage        = "io.kubernetes.cri.image-name"
	criPodLogs      = "io.kubernetes.cri.sandbox-log-directory"
	// The limits of all containers of the pod together, for runtimes that size a virtual machine by them.
	criCPUPeriod = "io.kubernetes.cri.sandbox-cpu-period"
	criCPUQuota  = "io.kubernetes.cri.sandbox-cpu-quota"
	criCPUShares = "io.kubernetes.cri.sandbox-cpu-shares"
	criMemory    = "io.kubernetes.cri.sandbox-memory"
)

// reservedPrefixes are those of annotations that only podd may write. With the first three a pod would choose the
// sandbox that its containers run in. By the others a runtime reads or writes files of the node, as root:
// org.criu.config names a configuration of CRIU, which can run programs; dev.gvisor.internal.checkpoint.path a folder
// for images of the sandbox, dev.gvisor.tar.rootfs.upper an archive to unpack into the root filesystem.
func reservedPrefixes() []string {
	return []string{
		"io.kubernetes.cri.", "io.kubernetes.cri-o.", "io.podd.", "org.criu.", "dev.gvisor.internal.", "dev.gvisor.tar.",
	}
}

// crunPrefix is that of crun's annotations. By most of them crun appends output of hooks to files of the node, connects
// to sockets, loads libraries or chooses cgroups, as root. harmlessOfCrun are those that concern the container only,
// see crun(1).
const crunPrefix = "run.oci."

func harmlessOfCrun() []string {
	return []string{
		"keep_original_groups", "mount_context_type", "seccomp_fail_unknown_syscall", "timens_offset",
	}
}

// ReservedAnnotation reports whether pods and plugins may not have annotations with that key, whatever a handler's
// configuration lets through.
func ReservedAnnotation(key string) bool {
	if option, ok := strings.CutPrefix(key, crunPrefix); ok {
		return !slices.Contains(harmlessOfCrun(), option)
	}
	return slices.ContainsFunc(reservedPrefixes(), func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// addSandboxSize adds the pod's limits. They leave out the pod's overhead: the runtime knows its own needs, and the
// kubelet has added the overhead to the limits of the pod's cgroup.
func (b *builder) addSandboxSize(list map[string]string) {
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

// ImageName returns the image as the user named it; kubelets before 1.29 send only its id.
func ImageName(image *cri.ImageSpec) string {
	return cmp.Or(image.GetUserSpecifiedImage(), image.GetImage())
}

func (b *builder) annotate(kind string) error {
	pod := b.in.Pod.GetMetadata()
	list := map[string]string{
		annotationKind:         kind,
		annotationContainer:    b.in.Config.GetMetadata().GetName(),
		annotationPodName:      pod.GetName(),
		annotationPodNamespace: pod.GetNamespace(),
		annotationPodUID:       pod.GetUid(),
		criType:                "container",
		criSandbox:             b.in.Sandbox,
		criContainer:           b.in.Config.GetMetadata().GetName(),
		criPodName:             pod.GetName(),
		criPodNamespace:        pod.GetNamespace(),
		criPodUID:              pod.GetUid(),
		criImage:               ImageName(b.in.Config.GetImage()),
	}
	if kind == "infra" {
		list[criType], list[criPodLogs] = "sandbox", b.in.Pod.GetLogDirectory()
		if b.in.Handler.OwnKernel {
			b.addSandboxSize(list)
		}
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
		if err := checkText(key, value); err != nil {
			return err
		}
	}
	b.spec.Annotations = list
	return nil
}
