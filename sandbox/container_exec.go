package sandbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/spec"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/sandbox/record"
)

// execOutputLimit caps each output stream of ExecSync, in bytes (CVE-2022-1708, CVE-2022-31030).
const execOutputLimit = 16 << 20

// ExecSync runs cmd in a running container. When timeout, if not 0, has passed, the command's process tree is killed
// and the error is context.DeadlineExceeded. The result counts against the budget until ctx ends.
func (e *Engine) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (oci.ExecResult, error) {
	c, rt, err := e.running(id)
	if err != nil {
		return oci.ExecResult{}, err
	}
	process, release, err := e.execProcess(c, cmd, false)
	if err != nil {
		return oci.ExecResult{}, err
	}
	defer release()
	memory := e.deps.Budgets.ExecOutput.Open(c.pod.ID)
	context.AfterFunc(ctx, memory.Release) // when the reply has been sent
	var result oci.ExecResult
	allow := cmp.Or(timeout, operation.Unlimited)
	err = e.onContainer(ctx, operation.ExecSync, c, allow, func(ctx context.Context) (err error) {
		operation.SetStage(ctx, "command")
		result, err = rt.ExecSync(ctx, oci.ExecRequest{
			ID: c.ID, Process: process, Timeout: timeout, Limit: execOutputLimit, Grow: memory.Grow,
		})
		return err
	})
	return result, err
}

// running finds a running container and its runtime.
func (e *Engine) running(id string) (*Container, Runtime, error) {
	c, err := e.Container(id)
	if err != nil {
		return nil, nil, err
	}
	if s := c.Status(); s.State != record.ContainerRunning {
		return nil, nil, fmt.Errorf("%w: container %s is %s, not running",
			errdefs.ErrFailedPrecondition, c.ID, s.State)
	}
	rt, err := c.pod.handler.Runtime()
	return c, rt, err
}

// execProcess returns the container's first process with another command; release ends its charge. It is read from the
// bundle, not kept in memory: a node has many containers and few execs.
func (e *Engine) execProcess(
	c *Container, cmd []string, terminal bool,
) (_ *specs.Process, release func(), err error) {
	if err := checkRestored(e, c.pod); err != nil {
		return nil, nil, err
	}
	data, err := os.ReadFile(filepath.Join(e.paths.Bundle(c.ID), "config.json"))
	if err != nil {
		return nil, nil, fmt.Errorf("read container's spec: %w", err)
	}
	var config struct {
		Process json.RawMessage `json:"process"`
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return nil, nil, fmt.Errorf("parse container's spec: %w", err)
	}
	if release, err = e.chargeCommand(c, config.Process, cmd); err != nil {
		return nil, nil, err
	}
	p, err := parseProcess(config.Process)
	if err == nil {
		p, err = spec.ExecProcess(p, cmd, terminal, e.cfg.Load().ExecCPUs(c.Status().Resources))
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	return p, release, nil
}

// parseProcess returns the process of a config.json.
func parseProcess(data []byte) (p *specs.Process, err error) {
	if len(data) > 0 {
		err = json.Unmarshal(data, &p)
	}
	if err != nil {
		return nil, fmt.Errorf("parse container's spec: %w", err)
	}
	if p == nil {
		return nil, errors.New("container's spec has no process")
	}
	return p, nil
}
