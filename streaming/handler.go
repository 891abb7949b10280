package streaming

import (
	"net/http"
	"time"

	"github.com/sirupsen/logrus"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/streaming/pkg/httpstream"
)

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for _, kind := range []string{"exec", "attach", "portforward"} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			mux.HandleFunc(method+" /"+kind+"/{token}", func(w http.ResponseWriter, r *http.Request) {
				s.serve(w, r, kind)
			})
		}
	}
	return mux
}

// serve runs the session of one request. The token is redeemed last, so that a refused request does not consume it.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, kind string) {
	token := r.PathValue("token")
	request, ok := s.tickets.peek(token)
	if !ok {
		http.NotFound(w, r)
		return
	}
	if r.ProtoMajor != 1 || !httpstream.IsUpgradeRequest(r) {
		http.Error(w, "this URL needs an HTTP/1.1 upgrade to SPDY/3.1 or WebSocket", http.StatusBadRequest)
		return
	}
	release, err := s.acquireSession(s.podOf(request))
	if err != nil {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "retry later (streaming.max_sessions, streaming.max_sessions_per_pod): "+err.Error(),
			http.StatusServiceUnavailable)
		return
	}
	defer s.releaseSession(release)
	ticket, ok := s.tickets.redeem(token)
	if !ok || kindOf(ticket.request) != kind {
		http.NotFound(w, r)
		return
	}
	sess := newSession(s.ctx, s.cfg.IdleTimeout, s.timing)
	defer sess.close()
	info := s.infoOf(ticket, time.Now())
	defer s.open.add(sess, info)()
	err = s.dispatch(sess, &upgrade{ResponseWriter: w, sess: sess}, r, ticket)
	s.backend.Ended(info, err)
	log := s.log.WithFields(targetFields(request)).WithFields(logrus.Fields{
		"session": kind, "request": info.Request, "duration": time.Since(info.Started).String(),
	})
	if err != nil {
		log.WithError(err).Info("streaming session ended early")
		return
	}
	log.Debug("streaming session ended")
}

func (s *Server) dispatch(sess *session, w http.ResponseWriter, r *http.Request, t *ticket) error {
	switch req := t.request.(type) {
	case *cri.ExecRequest:
		return s.remoteCommand(sess, w, r, req, func(streams Streams) (int, error) {
			streams.Request = t.id
			return s.backend.Exec(sess.ctx, req.GetContainerId(), req.GetCmd(), streams)
		})
	case *cri.AttachRequest:
		return s.remoteCommand(sess, w, r, req, func(streams Streams) (int, error) {
			return 0, s.backend.Attach(sess.ctx, req.GetContainerId(), streams)
		})
	case *cri.PortForwardRequest:
		return s.portForward(sess, w, r, req)
	}
	return nil
}

func kindOf(request proto.Message) string {
	switch request.(type) {
	case *cri.ExecRequest:
		return "exec"
	case *cri.AttachRequest:
		return "attach"
	}
	return "portforward"
}

// podOf returns the pod whose budget the session uses.
func (s *Server) podOf(request proto.Message) string {
	switch req := request.(type) {
	case interface{ GetContainerId() string }:
		return s.backend.PodOf(req.GetContainerId())
	case interface{ GetPodSandboxId() string }:
		return req.GetPodSandboxId()
	}
	return ""
}

// targetFields returns the log field with the id of the container or pod.
func targetFields(request proto.Message) logrus.Fields {
	switch req := request.(type) {
	case interface{ GetContainerId() string }:
		return logrus.Fields{"container": req.GetContainerId()}
	case interface{ GetPodSandboxId() string }:
		return logrus.Fields{"pod": req.GetPodSandboxId()}
	}
	return nil
}
