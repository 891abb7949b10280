package spec

// selinux writes the labels that host.Labels chose. A privileged container's process has none of its own ("SELinux
// restrictions are not applied"); its files keep theirs, so that others may go on using them.
func (b *builder) selinux() error {
	if !b.in.Host.SELinux || b.in.Handler.OwnKernel { // another kernel knows nothing of the host's labels
		return nil
	}
	b.spec.Linux.MountLabel = b.in.Labels.Mount
	if !b.privileged {
		b.spec.Process.SelinuxLabel = b.in.Labels.Process
	}
	return nil
}
