package spec

import "path"

// defaultMasked and defaultReadonly are the paths of a container whose request has none: those that kubelets send. They
// show the state of the node or act on it.
var (
	defaultMasked = []string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
		"/sys/devices/virtual/powercap", "/sys/firmware",
	}
	defaultReadonly = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// maskedPaths sets the lists as sent, and default ones for a client that sends none, such as crictl. A kubelet always
// sends lists, but empty ones for procMount Unmasked, and an empty list and none are the same in protobuf. Kubernetes
// allows Unmasked only in a user namespace of the pod's own (KEP-4265, since 1.30): there, none means none. Privileged
// containers have none.
func (b *builder) maskedPaths() error {
	if b.privileged {
		return nil
	}
	masked, readonly := b.sc.GetMaskedPaths(), b.sc.GetReadonlyPaths()
	if len(masked) == 0 && len(readonly) == 0 && !b.userns() {
		masked, readonly = defaultMasked, defaultReadonly
	}
	for _, p := range join(masked, readonly) {
		if err := absolute("path to mask", p); err != nil {
			return err
		}
	}
	b.spec.Linux.MaskedPaths, b.spec.Linux.ReadonlyPaths = clone(masked), clone(readonly)
	return nil
}

func absolute(what, p string) error {
	if !path.IsAbs(p) {
		return invalid("%s: %q is not an absolute path", what, p)
	}
	return checkText(what, p)
}
