package daemon

import (
	"context"
	"io"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/streaming"
)

// streaming starts the server of exec, attach and port-forward sessions.
func (d *daemon) streaming(ctx context.Context, engine *sandbox.Engine) (*streaming.Server, error) {
	limits := streaming.Limits{
		Session: d.budgets.Sessions.Admit, Forward: d.budgets.Forwards.Admit,
		Pending: func() (func(), error) { return d.budgets.PendingConnections.Admit("") },
	}
	srv, err := streaming.New(d.cfg.Streaming, limits, sessions{engine, d.observers.operation()}, d.log)
	if err != nil {
		return nil, err
	}
	d.onClose("streaming server", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		return srv.Close(ctx)
	})
	d.background.Go(func() {
		if err := srv.Serve(ctx); err != nil {
			d.log.WithError(err).Error("streaming server failed: exec, attach and port-forward do not work")
		}
	})
	return srv, nil
}

// sessions implements streaming.Backend with the engine.
type sessions struct {
	engine *sandbox.Engine
	// observe, if not nil, gets each session that has ended, as an operation.
	observe func(context.Context, operation.Operation)
}

func (s sessions) PodOf(containerID string) string {
	c, err := s.engine.Container(containerID)
	if err != nil {
		return ""
	}
	return c.Pod().ID
}

func (s sessions) Exec(ctx context.Context, containerID string, cmd []string, io streaming.Streams) (int, error) {
	code, err := s.engine.Exec(oci.WithRequest(ctx, io.Request), containerID, cmd, io.TTY, streams(ctx, io))
	return int(code), err
}

func (s sessions) Attach(ctx context.Context, containerID string, io streaming.Streams) error {
	return s.engine.Attach(ctx, containerID, streams(ctx, io))
}

func (s sessions) PortForward(ctx context.Context, podID string, port int32, stream io.ReadWriteCloser) error {
	return s.engine.PortForward(ctx, podID, port, stream)
}

// sessionVerbs are the verbs of the kinds of sessions.
var sessionVerbs = map[string]string{
	"exec": operation.Exec, "attach": operation.Attach, "portforward": operation.PortForward,
}

// Ended observes the session.
func (s sessions) Ended(info streaming.SessionInfo, err error) {
	if s.observe == nil {
		return
	}
	verb := sessionVerbs[info.Kind]
	o := operation.Operation{Verb: verb, Request: info.Request, Pod: info.Pod}
	if p, err := s.engine.Pod(info.Pod); err == nil { // else it is gone, and its names with it
		o = p.Operation(verb, info.Request)
	}
	o.Container, o.Began = info.Container, info.Started
	if c, err := s.engine.Container(info.Container); err == nil && info.Container != "" {
		o.Name += "/" + c.Config.GetMetadata().GetName()
	}
	s.observe(context.Background(), o.Ended(err))
}

// streams converts in to oci.Streams. Absent streams are skipped one by one, because an interface that holds a nil
// pointer is not nil.
func streams(ctx context.Context, in streaming.Streams) oci.Streams {
	out := oci.Streams{Stdin: in.Stdin}
	if in.Stdout != nil {
		out.Stdout = in.Stdout
	}
	if in.Stderr != nil {
		out.Stderr = in.Stderr
	}
	if in.Resize != nil {
		out.Resize = sizes(ctx, in.Resize)
	}
	return out
}

func sizes(ctx context.Context, in <-chan streaming.TerminalSize) <-chan oci.Size {
	out := make(chan oci.Size)
	go func() {
		defer close(out)
		for size := range in { // closed with the session
			select {
			case out <- oci.Size{Width: size.Width, Height: size.Height}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}
