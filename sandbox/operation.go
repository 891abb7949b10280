package sandbox

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"
)

// Operation is one verb at work on one pod or container, for people who ask what takes so long: a value, complete once
// Took is set.
type Operation struct {
	// Verb is the CRI's name of what is being done, or Recover.
	Verb string `json:"verb"`
	// Pod and Container are ids; Container is empty for what is done to a pod. Name is what the kubelet calls it.
	Pod       string `json:"pod"`
	Container string `json:"container,omitempty"`
	Name      string `json:"name"`
	// UID is the pod's in Kubernetes, Handler what runs it.
	UID     string    `json:"uid,omitempty"`
	Handler string    `json:"handler,omitempty"`
	Began   time.Time `json:"began"`
	// Took is its age while it is under way.
	Took Duration `json:"took"`
	// Stages are in the order in which they began; the last one is under way when the operation is. A stage that is come
	// back to, as each of many containers is deleted, is one stage again.
	Stages []Stage `json:"stages"`
	Done   bool    `json:"done"`
	Error  string  `json:"error,omitempty"`
	// Outcome is how it ended, "" while it is under way.
	Outcome Outcome `json:"outcome,omitempty"`
}

// Outcome is how an operation ended, in as few kinds as tell what to look for.
type Outcome string

// The outcomes. What took longer than it may is a timeout, whoever set the limit.
const (
	OutcomeOK       Outcome = "ok"
	OutcomeError    Outcome = "error"
	OutcomeTimeout  Outcome = "timeout"
	OutcomeCanceled Outcome = "canceled"
)

func outcomeOf(err error) Outcome {
	switch {
	case err == nil:
		return OutcomeOK
	case errdefs.IsDeadlineExceeded(err):
		return OutcomeTimeout
	case errdefs.IsCanceled(err):
		return OutcomeCanceled
	}
	return OutcomeError
}

// Stage is one named part of an operation.
type Stage struct {
	Name string `json:"name"`
	// After is the time from the operation's begin to the stage's.
	After Duration `json:"after"`
	Took  Duration `json:"took"`
}

// Duration is written as a string, "12ms".
type Duration time.Duration

// MarshalText rounds to what is of interest.
func (d Duration) MarshalText() ([]byte, error) {
	return []byte(time.Duration(d).Round(10 * time.Microsecond).String()), nil
}

// UnmarshalText reads what MarshalText wrote.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}

// Stage is the name of the last stage.
func (o Operation) Stage() string {
	if len(o.Stages) == 0 {
		return ""
	}
	return o.Stages[len(o.Stages)-1].Name
}

// operation is an Operation under way. A nil one takes every call and does nothing.
type operation struct {
	ctx context.Context // the caller's, for the observer alone
	of  *operations

	mu   sync.Mutex // guards what follows
	now  Operation
	slow *time.Timer
}

// operations are those under way. It begins and ends them, and says which take too long.
type operations struct {
	// slow is the age at which an operation is logged, once.
	slow time.Duration
	log  logrus.FieldLogger
	// observe, if set, is told of each operation that has ended: for histograms and traces.
	observe func(ctx context.Context, o Operation)

	mu       sync.Mutex // guards underWay
	underWay map[*operation]struct{}
}

type operationKey struct{}

// begin begins an operation. Whatever is given the returned context can name the stages. Who begins it must end it.
func (s *operations) begin(ctx context.Context, o Operation) (context.Context, *operation) {
	o.Began = time.Now()
	op := &operation{ctx: ctx, of: s, now: o}
	op.mu.Lock()
	op.slow = time.AfterFunc(s.slow, op.tellSlow)
	op.mu.Unlock()
	s.mu.Lock()
	if s.underWay == nil {
		s.underWay = map[*operation]struct{}{}
	}
	s.underWay[op] = struct{}{}
	s.mu.Unlock()
	return context.WithValue(ctx, operationKey{}, op), op
}

// stage names what the operation of ctx, if there is one, does from now on.
func stage(ctx context.Context, name string) {
	if op, ok := ctx.Value(operationKey{}).(*operation); ok {
		op.enter(name)
	}
}

func (op *operation) enter(name string) {
	if op == nil {
		return
	}
	op.mu.Lock()
	defer op.mu.Unlock()
	if op.now.Stage() == name {
		return
	}
	op.leaveLocked()
	op.now.Stages = append(op.now.Stages, Stage{Name: name, After: Duration(time.Since(op.now.Began))})
}

func (op *operation) leaveLocked() {
	if n := len(op.now.Stages); n > 0 {
		last := &op.now.Stages[n-1]
		last.Took = Duration(time.Since(op.now.Began)) - last.After
	}
}

// forEver is for operations that take as long as their callers want.
const forEver time.Duration = -1

// allow puts off the log line by what the caller has asked to wait for, a grace period say, or forEver.
func (op *operation) allow(d time.Duration) {
	op.mu.Lock()
	defer op.mu.Unlock()
	if d == forEver {
		op.slow.Stop()
		return
	}
	if d > 0 {
		op.slow.Reset(op.of.slow + d)
	}
}

// end ends the operation, with what it returns.
func (op *operation) end(err error) Operation {
	op.mu.Lock()
	op.slow.Stop()
	op.leaveLocked()
	op.now.Took, op.now.Done, op.now.Outcome = Duration(time.Since(op.now.Began)), true, outcomeOf(err)
	if err != nil {
		op.now.Error = err.Error()
	}
	ended := op.now
	op.mu.Unlock()
	s := op.of
	s.mu.Lock()
	delete(s.underWay, op)
	s.mu.Unlock()
	if s.observe != nil {
		s.observe(op.ctx, ended)
	}
	return ended
}

// look returns the operation as it stands.
func (op *operation) look() Operation {
	op.mu.Lock()
	defer op.mu.Unlock()
	if !op.now.Done {
		op.leaveLocked() // the last stage as long as it has taken so far
		op.now.Took = Duration(time.Since(op.now.Began))
	}
	seen := op.now
	seen.Stages = slices.Clone(seen.Stages)
	return seen
}

func (op *operation) tellSlow() {
	o := op.look()
	if o.Done {
		return
	}
	var inStage time.Duration
	if n := len(o.Stages); n > 0 {
		inStage = time.Duration(o.Stages[n-1].Took)
	}
	op.of.log.WithFields(logrus.Fields{
		"verb": o.Verb, "pod": o.Pod, "container": o.Container, "name": o.Name, "stage": o.Stage(),
		"age": time.Duration(o.Took).Round(time.Millisecond).String(), "inStage": inStage.Round(time.Millisecond).String(),
	}).Warn("slow operation")
}

// list returns the operations under way, the oldest first.
func (s *operations) list() []Operation {
	s.mu.Lock()
	ops := slices.Collect(maps.Keys(s.underWay))
	s.mu.Unlock()
	out := make([]Operation, 0, len(ops))
	for _, op := range ops {
		out = append(out, op.look())
	}
	slices.SortFunc(out, func(a, b Operation) int { return cmp.Or(a.Began.Compare(b.Began), cmp.Compare(a.Pod, b.Pod)) })
	return out
}

// history is the last operation of each verb on one pod or container.
type history struct {
	mu   sync.Mutex // guards last
	last map[string]Operation
}

func (h *history) add(o Operation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last == nil {
		h.last = map[string]Operation{}
	}
	h.last[o.Verb] = o
}

// list returns the operations in the order in which they began.
func (h *history) list() []Operation {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.SortedFunc(maps.Values(h.last), func(a, b Operation) int { return a.Began.Compare(b.Began) })
}

// The verbs, as the CRI calls them.
const (
	verbRunPod          = "RunPodSandbox"
	verbStopPod         = "StopPodSandbox"
	verbRemovePod       = "RemovePodSandbox"
	verbCreateContainer = "CreateContainer"
	verbStartContainer  = "StartContainer"
	verbStopContainer   = "StopContainer"
	verbRemoveContainer = "RemoveContainer"
	verbUpdateContainer = "UpdateContainerResources"
	verbExecSync        = "ExecSync"
	verbRecover         = "Recover"
)

func newOperation(verb string, p *Pod) Operation {
	m := p.Config.GetMetadata()
	return Operation{Verb: verb, Pod: p.ID, Name: m.GetNamespace() + "/" + m.GetName(), UID: m.GetUid(), Handler: p.runtime()}
}

// onPod runs do as an operation on p.
func (e *Engine) onPod(ctx context.Context, verb string, p *Pod, do func(ctx context.Context) error) error {
	ctx, op := e.operations.begin(ctx, newOperation(verb, p))
	err := do(ctx)
	p.history.add(op.end(err))
	return err
}

// onContainer is onPod for a container. allow is how long the caller has asked to wait, see operation.allow.
func (e *Engine) onContainer(ctx context.Context, verb string, c *Container, allow time.Duration, do func(ctx context.Context) error) error {
	o := newOperation(verb, c.pod)
	o.Container, o.Name = c.ID, o.Name+"/"+c.Config.GetMetadata().GetName()
	ctx, op := e.operations.begin(ctx, o)
	op.allow(allow)
	err := do(ctx)
	if ended := op.end(err); verb != verbExecSync { // of which there are many, and most are probes
		c.history.add(ended)
	}
	return err
}

// Operations returns what the engine is doing now, the oldest first.
func (e *Engine) Operations() []Operation { return e.operations.list() }

// Operations returns the last operation of each verb on the pod, in the order in which they began.
func (p *Pod) Operations() []Operation { return p.history.list() }

// Operations returns the last operation of each verb on the container, in the order in which they began.
func (c *Container) Operations() []Operation { return c.history.list() }
