package sandbox

import (
	"context"
	"time"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/operation"
)

// Operation returns an operation on p that was asked for by a request, see oci.Request.
func (p *Pod) Operation(verb, request string) operation.Operation {
	m := p.Config.GetMetadata()
	return operation.Operation{
		Verb: verb, Pod: p.ID, Name: m.GetNamespace() + "/" + m.GetName(), UID: m.GetUid(), Handler: p.Handler,
		Request: request,
	}
}

// onPod runs do as an operation on p.
func (e *Engine) onPod(ctx context.Context, verb string, p *Pod, do func(ctx context.Context) error) error {
	ctx, active := e.operations.Begin(ctx, p.Operation(verb, oci.Request(ctx)))
	err := do(ctx)
	p.history.Add(active.End(err))
	return err
}

// onContainer is onPod for a container. allow is how long the caller has asked to wait, see operation.Active.Allow.
func (e *Engine) onContainer(
	ctx context.Context, verb string, c *Container, allow time.Duration, do func(ctx context.Context) error,
) error {
	o := c.pod.Operation(verb, oci.Request(ctx))
	o.Container, o.Name = c.ID, o.Name+"/"+c.Config.GetMetadata().GetName()
	ctx, active := e.operations.Begin(ctx, o)
	active.Allow(allow)
	err := do(ctx)
	if ended := active.End(err); verb != operation.ExecSync { // there are many of these, mostly probes
		c.history.Add(ended)
	}
	return err
}

// Operations returns the operations in progress, oldest first.
func (e *Engine) Operations() []operation.Operation { return e.operations.List() }

// Operations returns the last operation of each verb on the pod, in the order in which they began.
func (p *Pod) Operations() []operation.Operation { return p.history.List() }

// Operations returns the last operation of each verb on the container, in the order in which they began.
func (c *Container) Operations() []operation.Operation { return c.history.List() }
