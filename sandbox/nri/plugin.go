package nri

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/ttrpc"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// queueLength is how many calls may wait for one plugin. A plugin that falls further behind is disconnected: it must
	// synchronise again, because it has missed events.
	queueLength = 1024
	// queueWait is how long a request waits for the calls before it.
	queueWait = 10 * time.Second
	// updatesLength is how many requests of one plugin to update containers may wait.
	updatesLength = 256
)

var (
	errClosed = fmt.Errorf("%w: the plugin has disconnected", errdefs.ErrUnavailable)
	errBehind = fmt.Errorf("%w: the plugin is %d calls behind", errdefs.ErrResourceExhausted, queueLength)
)

// plugin is one connected plugin. Its calls are made one after the other by its worker.
type plugin struct {
	index, base string
	pid         int
	launched    bool
	since       time.Time
	events      api.EventMask
	// refuse: a request that the plugin does not answer fails. keep: it stays connected if it was only too slow.
	refuse, keep bool
	// timeout is the limit of a request, syncTimeout that of a part of the synchronisation.
	timeout, syncTimeout time.Duration
	service              api.PluginService
	log                  logrus.FieldLogger
	stats                *stats

	// vanished are the pods and containers that were known when the plugin joined, and gone when it was synchronised:
	// it does not get the events of their end. Only the worker uses it.
	vanished map[string]bool

	calls   chan *call
	updates chan func()
	current atomic.Pointer[underWay]

	once   sync.Once
	closed chan struct{}
	reason error // why it was closed, set before closed
	// hangUp ends the connection. It may wait for a write, writeLimit at most.
	hangUp func()
}

// underWay is the call that a plugin has got and not answered.
type underWay struct {
	verb  string
	since time.Time
}

// call is a call that waits for its turn. The result goes to done, unless that is nil.
type call struct {
	ctx  context.Context
	verb string
	do   func(ctx context.Context) error
	done chan error
}

func (p *plugin) name() string { return p.index + "-" + p.base }

// close has the plugin disconnected. It does not wait for that: the caller may hold a lock. The first reason counts.
func (p *plugin) close(reason error) {
	p.once.Do(func() {
		p.reason = reason
		close(p.closed)
	})
}

func (p *plugin) isClosed() bool {
	select {
	case <-p.closed:
		return true
	default:
		return false
	}
}

// work makes the calls until the plugin is closed.
func (p *plugin) work() {
	for {
		select {
		case <-p.closed:
			return
		case c := <-p.calls:
			err := p.serve(c)
			if c.done != nil {
				c.done <- err
			}
		}
	}
}

// workUpdates makes the updates that the plugin asked for, in their order, until the plugin is closed.
func (p *plugin) workUpdates() {
	for {
		select {
		case <-p.closed:
			return
		case update := <-p.updates:
			update()
		}
	}
}

// serve makes one call, unless its caller has given up.
func (p *plugin) serve(c *call) error {
	if c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	ctx, cancel := context.WithTimeout(c.ctx, p.timeout)
	defer cancel()
	start := time.Now()
	p.current.Store(&underWay{c.verb, start})
	err := c.do(ctx)
	p.current.Store(nil)
	slow := err != nil && ctx.Err() != nil // also when it answers that its own deadline has passed
	failed := (slow || isFailure(err)) && (c.ctx.Err() == nil || p.isClosed())
	p.stats.add(c.verb, time.Since(start), err, failed)
	if !failed {
		return err
	}
	if slow {
		err = fmt.Errorf("%w: no answer within %v", context.DeadlineExceeded, p.timeout)
	}
	err = &failure{fmt.Errorf("%s: %w", c.verb, err)}
	if !slow || !p.keep {
		p.close(err)
	}
	return err
}

// failure is the error of a plugin that did not answer, or answered rubbish. Other errors are answers.
type failure struct{ err error }

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// isFailure reports whether err is not an answer of the plugin, which would be a gRPC status. Two of them are the
// library's: an answer that is too large is a failure, a request that is too large is not the plugin's.
func isFailure(err error) bool {
	if err == nil || isTooLarge(err) {
		return false
	}
	s, answered := status.FromError(err)
	return !answered || s.Code() == codes.ResourceExhausted
}

// isTooLarge reports whether err says that a request does not fit a message.
func isTooLarge(err error) bool {
	var tooLarge *ttrpc.OversizedMessageErr
	return errors.As(err, &tooLarge)
}

// post puts an event into the queue. It never waits.
func (p *plugin) post(verb string, do func(ctx context.Context) error) {
	p.enqueue(&call{ctx: context.Background(), verb: verb, do: func(ctx context.Context) error {
		err := do(ctx)
		if err != nil {
			p.log.WithError(err).WithField("event", verb).Warn("NRI plugin failed to handle an event")
		}
		return err
	}})
}

func (p *plugin) enqueue(c *call) error {
	select {
	case p.calls <- c:
		return nil
	default:
		p.close(errBehind)
		return errBehind
	}
}

// wait puts a call into the queue and waits for its end.
//
// A plugin whose turn does not come in time misses the request. Unless that fails, the plugin must synchronise again.
func (p *plugin) wait(caller context.Context, verb string, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(caller, queueWait+p.timeout,
		fmt.Errorf("%w: the calls before it took longer than %v", context.DeadlineExceeded, queueWait))
	defer cancel()
	c := &call{ctx: ctx, verb: verb, do: do, done: make(chan error, 1)}
	if err := p.enqueue(c); err != nil {
		return &failure{err}
	}
	select {
	case err := <-c.done:
		return err
	case <-p.closed:
		return p.ended(c)
	case <-ctx.Done():
		err := &failure{context.Cause(ctx)}
		if caller.Err() == nil && !p.keep {
			p.close(err)
		}
		return err
	}
}

// ended returns the result of a call of a plugin that has been closed, if it has one.
func (p *plugin) ended(c *call) error {
	select {
	case err := <-c.done:
		return err
	default:
		return &failure{errors.Join(errClosed, p.reason)}
	}
}

// ask sends a request to a plugin that has subscribed to the event, and waits for the answer. The answer is nil if the
// plugin has not, or has failed and the request proceeds without it.
func ask[Q, A any](
	ctx context.Context, p *plugin, event api.Event, request *Q, method func(context.Context, *Q) (*A, error),
) (*A, error) {
	if !p.events.IsSet(event) || p.isClosed() {
		return nil, nil
	}
	answer := make(chan *A, 1)
	err := p.wait(ctx, event.PrettyName(), func(ctx context.Context) error {
		a, err := method(ctx, request)
		if err == nil {
			answer <- a
		}
		return err
	})
	var failed *failure
	switch {
	case err == nil:
		return <-answer, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case status.Code(err) == codes.Unimplemented: // it is older than the request
		return nil, nil
	case isTooLarge(err): // proceeding without the plugin would let a container evade it
		return nil, fmt.Errorf("%w: %s of NRI plugin %s: %w: use fewer or shorter variables, arguments, mounts, labels "+
			"and annotations", errdefs.ErrInvalidArgument, event.PrettyName(), p.name(), err)
	case !errors.As(err, &failed):
		return nil, fmt.Errorf("%w: NRI plugin %s refuses: %w", errdefs.ErrFailedPrecondition, p.name(), err)
	case p.refuse: // err is only quoted: that the plugin's time is over does not mean that the caller's is
		return nil, fmt.Errorf("%w: NRI plugin %s has failed, and on_failure is %s: %s",
			errdefs.ErrUnavailable, p.name(), refuseOnFailure, err.Error())
	}
	p.log.WithError(err).Warn("NRI plugin has failed, proceeding without it")
	return nil, nil
}

// orStateChange returns method for a plugin that may be older than the request: such plugins get a StateChangeEvent.
func orStateChange[Q, A any](
	p *plugin, change *api.StateChangeEvent, method func(context.Context, *Q) (*A, error),
) func(context.Context, *Q) (*A, error) {
	return func(ctx context.Context, request *Q) (*A, error) {
		answer, err := method(ctx, request)
		if status.Code(err) == codes.Unimplemented {
			_, err = p.service.StateChange(ctx, change)
		}
		return answer, err
	}
}

// enqueueUpdate puts updates of containers into their queue. It never waits.
func (p *plugin) enqueueUpdate(update func()) bool {
	select {
	case p.updates <- update:
		return true
	default:
		p.close(fmt.Errorf("%w: %d updates that the plugin asked for are waiting",
			errdefs.ErrResourceExhausted, updatesLength))
		return false
	}
}
