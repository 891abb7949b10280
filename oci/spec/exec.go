package spec

import (
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// ExecProcess makes the process of a command that runs in a container, from the container's own process: the same
// environment, user, directory, capabilities and labels.
//
// It keeps oom_score_adj, which was clamped when the container was made. Without it a command started by crun would
// inherit the daemon's value: near -1000, it would be the last to be killed when it eats the node's memory.
func ExecProcess(base *specs.Process, cmd []string, tty bool) (*specs.Process, error) {
	if base == nil {
		return nil, invalid("the container has no process to take after")
	}
	if len(cmd) == 0 || cmd[0] == "" {
		return nil, invalid("there is no command to run")
	}
	if err := texts("argument", cmd); err != nil {
		return nil, err
	}
	p := *base
	p.Args = slices.Clone(cmd)
	p.Terminal = tty
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
