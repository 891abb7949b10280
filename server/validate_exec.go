package server

import (
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// checkExecSync accepts any timeout: 0 or less means none.
func checkExecSync(r *cri.ExecSyncRequest) error {
	c := newCheck()
	c.id("container_id", r.GetContainerId())
	c.command("cmd", r.GetCmd())
	return c.err()
}

func checkExec(r *cri.ExecRequest) error {
	c := newCheck()
	c.id("container_id", r.GetContainerId())
	c.command("cmd", r.GetCmd())
	c.streams(r)
	return c.err()
}

func checkAttach(r *cri.AttachRequest) error {
	c := newCheck()
	c.id("container_id", r.GetContainerId())
	c.streams(r)
	return c.err()
}

func checkPortForward(r *cri.PortForwardRequest) error {
	c := newCheck()
	c.id("pod_sandbox_id", r.GetPodSandboxId())
	c.count("port", len(r.GetPort()))
	for i, p := range r.GetPort() {
		c.item("port", i).between("", int64(p), 1, 65535)
	}
	return c.err()
}

func (c check) command(field string, cmd []string) {
	c.that(len(cmd) > 0 && cmd[0] != "", field, "must not be empty")
	c.arguments(field, c.words(field, cmd))
}

// streams checks the streams of exec and attach.
func (c check) streams(r interface {
	GetStdin() bool
	GetStdout() bool
	GetStderr() bool
	GetTty() bool
}) {
	c.that(r.GetStdin() || r.GetStdout() || r.GetStderr(), "", "one of stdin, stdout and stderr must be set")
	c.that(!r.GetTty() || !r.GetStderr(), "stderr", "must not be set with tty: a terminal has one output")
}
