package spec

import (
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// ExecProcess returns the process of a command that runs in a container, derived from the container's own process: the
// same environment, user, directory, capabilities and labels.
//
// It keeps oom_score_adj, which was clamped when the container was created. Without it crun starts the command with the
// daemon's value, near -1000, and the kernel kills the command last when it exhausts the node's memory.
//
// CPUs is a list of CPUs of the container, to which the command is bound; "" for all.
func ExecProcess(base *specs.Process, cmd []string, tty bool, cpus string) (*specs.Process, error) {
	if base == nil {
		return nil, invalid("the container's config.json has no process")
	}
	if len(cmd) == 0 || cmd[0] == "" {
		return nil, invalid("no command to run")
	}
	if err := CheckTexts("argument", cmd); err != nil {
		return nil, err
	}
	p := *base
	p.Args = slices.Clone(cmd)
	p.Terminal = tty
	if cpus != "" {
		p.ExecCPUAffinity = &specs.CPUAffinity{Final: cpus} // the initial one is the runtime's, of podd's own CPUs
	}
	p.ConsoleSize = nil
	e := environ{at: map[string]int{}}
	for _, kv := range base.Env {
		e.set(kv)
	}
	if tty && !e.has("TERM") {
		e.set(defaultTerm)
	}
	p.Env = e.list
	return &p, nil
}
