package server

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox"
)

// Status returns whether pods can run, and the features of each handler and of podd.
func (s *Server) Status(_ context.Context, r *cri.StatusRequest) (*cri.StatusResponse, error) {
	handlers := s.deps.Engine.Handlers()
	resp := &cri.StatusResponse{
		Status:          &cri.RuntimeStatus{Conditions: s.conditions(handlers)},
		RuntimeHandlers: runtimeHandlers(handlers),
		Features: &cri.RuntimeFeatures{
			SupplementalGroupsPolicy:  true,
			UserNamespacesHostNetwork: userNamespacesHostNetwork,
			MountOptions:              true,
		},
	}
	if r.GetVerbose() {
		resp.Info = s.statusInfo(handlers)
	}
	return resp, nil
}

// userNamespacesHostNetwork: pods on the host's network may have a user namespace.
const userNamespacesHostNetwork = true

// conditions returns the two that the kubelet requires, and one for each further handler that is not ready: the kubelet
// ignores conditions that it does not know, crictl shows them.
func (s *Server) conditions(handlers []sandbox.Handler) []*cri.RuntimeCondition {
	runtime := errors.New("no default handler is configured, set runtime.default_handler")
	reason := "DefaultHandlerNotReady"
	var others []*cri.RuntimeCondition
	for _, h := range handlers {
		switch {
		case h.Default:
			runtime = h.Err
		case h.Err != nil:
			others = append(others, condition("HandlerReady/"+h.Name, "HandlerNotReady", h.Err))
		}
	}
	if runtime == nil {
		runtime, reason = s.deps.Space(), "NoSpace"
	}
	return append([]*cri.RuntimeCondition{
		condition(cri.RuntimeReady, reason, runtime),
		condition(cri.NetworkReady, "NetworkPluginNotReady", s.deps.Engine.NetworkReady()),
	}, others...)
}

func condition(kind, reason string, err error) *cri.RuntimeCondition {
	if err == nil {
		return &cri.RuntimeCondition{Type: kind, Status: true}
	}
	return &cri.RuntimeCondition{Type: kind, Reason: reason, Message: truncate(err.Error())}
}

// runtimeHandlers lists the default handler as "" first, then all handlers by name. One that is not ready is listed
// without features, so that the kubelet does not run pods with it that need them.
func runtimeHandlers(handlers []sandbox.Handler) []*cri.RuntimeHandler {
	var unnamed, named []*cri.RuntimeHandler
	for _, h := range handlers {
		features := &cri.RuntimeHandlerFeatures{}
		if h.Err == nil {
			features.RecursiveReadOnlyMounts = h.Features.RecursiveReadOnly
			features.UserNamespaces = h.Features.UserNamespaces
		}
		named = append(named, &cri.RuntimeHandler{Name: h.Name, Features: features})
		if h.Default {
			unnamed = append(unnamed, &cri.RuntimeHandler{Features: features})
		}
	}
	return append(unnamed, named...)
}

// statusInfo is the verbose part: one JSON value per section.
func (s *Server) statusInfo(handlers []sandbox.Handler) map[string]string {
	info := map[string]string{
		"version":  section(s.cfg.Version),
		"handlers": section(handlerInfo(handlers)),
	}
	for name, value := range s.deps.Info {
		info[name] = section(value())
	}
	return info
}

// section returns a value as JSON. crictl shows lists as one escaped string, so a list is wrapped in an object.
func section(value any) string {
	text, err := json.Marshal(value)
	if err != nil { // keep the other sections
		text, _ = json.Marshal(map[string]string{"error": err.Error()})
	}
	if strings.HasPrefix(string(text), "[") {
		return `{"items":` + string(text) + `}`
	}
	return string(text)
}

func handlerInfo(handlers []sandbox.Handler) map[string]any {
	out := map[string]any{}
	for _, h := range handlers {
		info := map[string]any{"default": h.Default, "ready": h.Err == nil, "features": h.Features}
		if h.Err != nil {
			info["error"] = h.Err.Error()
		}
		out[h.Name] = info
	}
	return out
}
