package spec

// selinux sets the labels that host.Labels chose. The process of a privileged container has none ("SELinux restrictions
// are not applied"); its files have theirs, so that other containers can use them.
func (b *builder) selinux() error {
	if !b.in.Host.SELinux || b.in.Handler.OwnKernel { // the sandbox's kernel does not know the host's labels
		return nil
	}
	b.spec.Linux.MountLabel = b.in.Labels.Mount
	if !b.privileged {
		b.spec.Process.SelinuxLabel = b.in.Labels.Process
	}
	return nil
}
