// Package operation records the engine's work: one Operation for each verb at work on a pod or container, with
// the times of its stages. It owns the list of operations in progress and logs slow ones; it knows nothing of pods
// beyond their ids and names. The engine begins and ends operations; metrics, tracing and the server read them.
package operation

import (
	"cmp"
	"time"

	"github.com/containerd/errdefs"
)

// The verbs, as the CRI calls them, and Recover.
const (
	RunPod          = "RunPodSandbox"
	StopPod         = "StopPodSandbox"
	RemovePod       = "RemovePodSandbox"
	CreateContainer = "CreateContainer"
	StartContainer  = "StartContainer"
	StopContainer   = "StopContainer"
	RemoveContainer = "RemoveContainer"
	UpdateContainer = "UpdateContainerResources"
	ExecSync        = "ExecSync"
	Exec            = "Exec"
	Attach          = "Attach"
	PortForward     = "PortForward"
	CheckpointPod   = "CheckpointPod"

	CheckpointContainer = "CheckpointContainer"

	RestorePod = "RestorePod"
	Recover    = "Recover"
)

// Operation is one verb at work on one pod or container: a value, complete once Done is set.
type Operation struct {
	// Verb is the CRI's name of the operation, or Recover.
	Verb string `json:"verb"`
	// Pod and Container are ids; Container is empty for an operation on a pod. Name is the kubelet's name of it.
	Pod       string `json:"pod"`
	Container string `json:"container,omitempty"`
	Name      string `json:"name"`
	// Request is the id of the CRI call in the log, "" without one.
	Request string `json:"request,omitempty"`
	// UID is the pod's in Kubernetes, Handler the runtime handler that runs it.
	UID     string    `json:"uid,omitempty"`
	Handler string    `json:"handler,omitempty"`
	Began   time.Time `json:"began"`
	// Took is the age while the operation is in progress.
	Took Duration `json:"took"`
	// Stages are in the order in which they began; the last one is in progress when the operation is. A stage that is
	// entered again after another one is listed again.
	Stages []Stage `json:"stages"`
	// FailedIn is the stage that failed, if stages that undo the operation come after it.
	FailedIn string `json:"failed_in,omitempty"`
	Done     bool   `json:"done"`
	Error    string `json:"error,omitempty"`
	// Outcome is "" while the operation is in progress.
	Outcome Outcome `json:"outcome,omitempty"`
}

// Stage returns the name of the last stage.
func (o Operation) Stage() string {
	if len(o.Stages) == 0 {
		return ""
	}
	return o.Stages[len(o.Stages)-1].Name
}

// InStage returns the time in the last stage, or the age of an operation without one.
func (o Operation) InStage() time.Duration {
	if len(o.Stages) == 0 {
		return time.Duration(o.Took)
	}
	return time.Duration(o.Stages[len(o.Stages)-1].Took)
}

// FailedStage returns the name of the stage that failed, of an operation that did.
func (o Operation) FailedStage() string { return cmp.Or(o.FailedIn, o.Stage()) }

// Stage is one named part of an operation.
type Stage struct {
	Name string `json:"name"`
	// After is the time from the start of the operation to the start of the stage.
	After Duration `json:"after"`
	Took  Duration `json:"took"`
}

// Outcome classifies how an operation ended.
type Outcome string

// The outcomes. An expired deadline is OutcomeTimeout, no matter which side set it.
const (
	OutcomeOK       Outcome = "ok"
	OutcomeError    Outcome = "error"
	OutcomeTimeout  Outcome = "timeout"
	OutcomeCanceled Outcome = "canceled"
)

// Ended returns the operation, ended now with an error, or nil.
func (o Operation) Ended(err error) Operation {
	o.Took, o.Done, o.Outcome = Duration(time.Since(o.Began)), true, outcomeOf(err)
	if err != nil {
		o.Error = err.Error()
	}
	return o
}

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

// Duration is marshalled as a string, "12ms".
type Duration time.Duration

// MarshalText rounds to 10 microseconds.
func (d Duration) MarshalText() ([]byte, error) {
	return []byte(time.Duration(d).Round(10 * time.Microsecond).String()), nil
}

// UnmarshalText parses the output of MarshalText.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}
