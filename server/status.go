package server

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox"
)

// Status says whether pods can be run, what each handler can do, and what podd itself can do.
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

// userNamespacesHostNetwork: pods with a user namespace on the host's network.
const userNamespacesHostNetwork = true

// conditions are the two that the kubelet needs, and one for each further handler that is not ready: the kubelet
// passes over types that it does not know, people do not.
func (s *Server) conditions(handlers []sandbox.Handler) []*cri.RuntimeCondition {
	runtime := errors.New("no default handler is configured")
	var others []*cri.RuntimeCondition
	for _, h := range handlers {
		switch {
		case h.Default:
			runtime = h.Err
		case h.Err != nil:
			others = append(others, condition("HandlerReady/"+h.Name, "HandlerNotReady", h.Err))
		}
	}
	return append([]*cri.RuntimeCondition{
		condition(cri.RuntimeReady, "DefaultHandlerNotReady", runtime),
		condition(cri.NetworkReady, "NetworkPluginNotReady", s.deps.Engine.NetworkReady()),
	}, others...)
}

func condition(kind, reason string, err error) *cri.RuntimeCondition {
	if err == nil {
		return &cri.RuntimeCondition{Type: kind, Status: true}
	}
	return &cri.RuntimeCondition{Type: kind, Reason: reason, Message: clip(err.Error())}
}

// runtimeHandlers lists the default handler as "" first, then every handler by name. One that is not ready is
// listed without features, so that the kubelet does not send it a pod that needs them.
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

// statusInfo is the verbose part, for people: one JSON value per section.
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

// section is a value as JSON. crictl shows lists as one escaped string, so a list becomes an object's only entry.
func section(value any) string {
	text, err := json.Marshal(value)
	if err != nil { // the other sections are still worth having
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
