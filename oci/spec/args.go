package spec

func (b *builder) args() error {
	args := arguments(b.in.Config.GetCommand(), b.in.Config.GetArgs(), b.in.Image.Entrypoint, b.in.Image.Cmd)
	if len(args) == 0 || args[0] == "" {
		return invalid("neither the container nor its image names a command to run")
	}
	b.spec.Process.Args = args
	return CheckTexts("argument", args)
}

// arguments combines the command line of the container with that of its image, as Kubernetes does: command replaces
// the image's entrypoint and cmd, args replace the cmd only.
// https://kubernetes.io/docs/tasks/inject-data-application/define-command-argument-container/
func arguments(command, args, entrypoint, cmd []string) []string {
	if len(command) > 0 {
		return join(command, args)
	}
	if len(entrypoint) == 1 && entrypoint[0] == "" {
		entrypoint = nil // image builders reset the entrypoint of a base image so
	}
	if len(args) > 0 {
		return join(entrypoint, args)
	}
	return join(entrypoint, cmd)
}

func join(a, b []string) []string {
	return append(append(make([]string, 0, len(a)+len(b)), a...), b...)
}
