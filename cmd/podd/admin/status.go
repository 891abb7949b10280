package admin

import (
	"context"
	"net/http"
	"time"

	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/sandbox"
	"github.com/podd-project/podd/sandbox/budget"
	"github.com/podd-project/podd/sandbox/nri"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/streaming"
)

// Status is the answer to GET /status: the node at a glance.
type Status struct {
	Version string `json:"version"`
	Host    string `json:"host"`
	// Problems are derived from the rest and from the history, see SetProblems.
	Problems []Problem `json:"problems"`
	// Pid and Started are those of the daemon.
	Pid     int       `json:"pid"`
	Started time.Time `json:"started"`
	// Configuration says when it was loaded, and why the last reload was refused.
	Configuration Configuration `json:"configuration"`
	// Conditions are those of the CRI's Status: RuntimeReady, NetworkReady and one for each handler that is not ready.
	Conditions []Condition `json:"conditions"`
	// Operations are in progress, oldest first.
	Operations []operation.Operation `json:"operations"`
	// Troubles are what could not be freed, and records that cannot be read or are damaged.
	Troubles []sandbox.Trouble    `json:"troubles"`
	Budgets  []budget.Usage       `json:"budgets"`
	Pulls    []image.PullProgress `json:"pulls"`
	// FailedPulls are the names whose last pull failed.
	FailedPulls []image.PullFailure     `json:"failed_pulls,omitempty"`
	Sessions    []streaming.SessionInfo `json:"sessions"`
	// Disk is as old as the last measurement.
	Disk Space `json:"disk"`
	// NRI are the node's plugins.
	NRI  nri.Status `json:"nri"`
	Pods []Pod      `json:"pods"`
	// Omitted is the number of items beyond the limit, of all lists above together.
	Omitted int `json:"omitted,omitempty"`
}

// Condition says whether a part of the node works, and why not.
type Condition struct {
	Type    string `json:"type"`
	Ready   bool   `json:"ready"`
	Message string `json:"message,omitempty"`
}

// Pod is one pod. Its operations, and those of its containers, are the last one of each verb; only an answer about a
// single pod has them.
type Pod struct {
	ID string `json:"id"`
	// Name is namespace/name.
	Name string `json:"name"`
	// State is creating, ready, stopping or notready.
	State   string    `json:"state"`
	Created time.Time `json:"created"`
	// Reason says why the pod is not ready.
	Reason  string   `json:"reason,omitempty"`
	IPs     []string `json:"ips,omitempty"`
	Handler string   `json:"handler,omitempty"`
	// Cgroup is the pod's cgroup_parent.
	Cgroup     string                `json:"cgroup,omitempty"`
	Operations []operation.Operation `json:"operations,omitempty"`
	Containers []Container           `json:"containers"`
	// Obstacles are why the pod could not be checkpointed. Only an answer about a single pod has them.
	Obstacles []string `json:"obstacles,omitempty"`
}

// Container is one container of a pod. State is creating, created, running or exited.
type Container struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	State string `json:"state"`
	// Image is the name with which it was asked for.
	Image string `json:"image,omitempty"`
	// Attempt is the kubelet's number of the start.
	Attempt  uint32    `json:"attempt,omitempty"`
	Created  time.Time `json:"created"`
	Finished time.Time `json:"finished,omitzero"`
	// Reason, Message and ExitCode are those of the CRI's status once it has exited.
	Reason   string `json:"reason,omitempty"`
	Message  string `json:"message,omitempty"`
	ExitCode int32  `json:"exit_code,omitempty"`
	// Unmonitored is true if the container runs and its monitor has died: its log has ended.
	Unmonitored bool                  `json:"unmonitored,omitempty"`
	Operations  []operation.Operation `json:"operations,omitempty"`
}

func (rt router) status(n Node) {
	rt.answer(http.MethodGet, "/status", timeout, func(ctx context.Context, r *http.Request) (any, error) {
		limit, err := intParam(r, "limit", defaultLimit, MaxLimit)
		if err != nil {
			return nil, err
		}
		s, err := n.Status(ctx, r.URL.Query().Get("pod"))
		if err != nil {
			return nil, err
		}
		s.cut(limit)
		return s, nil
	})
}

// cut shortens each list to the limit. Budgets and conditions are few.
func (s *Status) cut(limit int) {
	cutList(&s.Problems, limit, &s.Omitted)
	cutList(&s.Operations, limit, &s.Omitted)
	cutList(&s.Troubles, limit, &s.Omitted)
	cutList(&s.Pulls, limit, &s.Omitted)
	cutList(&s.Sessions, limit, &s.Omitted)
	cutList(&s.Pods, limit, &s.Omitted)
}

func cutList[T any](all *[]T, limit int, omitted *int) {
	l := first(*all, limit)
	*all, *omitted = l.Items, *omitted+l.Omitted
}
