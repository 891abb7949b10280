package shim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/api/events"
	eventservice "github.com/containerd/containerd/api/services/ttrpc/events/v1"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

// eventServer is the socket to which shims post events. They try again for a while when nobody listens, and go on
// without: nothing here relies on an event but the mark of an out-of-memory kill, which the control group tells too.
type eventServer struct {
	server *ttrpc.Server
	done   chan struct{}
}

// eventsPath is where this handler's shims post events.
func (r *Runtime) eventsPath() string { return filepath.Join(r.cfg.Root, "events.sock") }

// eventsAddress is that path once somebody listens there.
func (r *Runtime) eventsAddress() (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.events != nil || r.closed {
		return r.eventsPath(), nil
	}
	e, err := r.listen()
	if err != nil {
		return "", fmt.Errorf("listen for events: %w", err)
	}
	r.events = e
	return r.eventsPath(), nil
}

// listen takes the socket over, from a daemon that is no more.
func (r *Runtime) listen() (*eventServer, error) {
	if err := os.MkdirAll(r.cfg.Root, 0o700); err != nil {
		return nil, err
	}
	if err := os.Remove(r.eventsPath()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: r.eventsPath(), Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // it may be another's by then
	if err := os.Chmod(r.eventsPath(), 0o600); err != nil {
		l.Close()
		return nil, err
	}
	server, err := ttrpc.NewServer(ttrpc.WithServerHandshaker(ttrpc.UnixSocketRequireSameUser()))
	if err != nil {
		l.Close()
		return nil, err
	}
	eventservice.RegisterTTRPCEventsService(server, listener{r})
	e := &eventServer{server: server, done: make(chan struct{})}
	go func() {
		defer close(e.done)
		_ = server.Serve(context.Background(), l) // ends with Close
	}()
	return e, nil
}

func (e *eventServer) close() error {
	err := e.server.Close()
	<-e.done
	return err
}

// listener hears events.
type listener struct{ r *Runtime }

// Forward is called by shims with one event each. What they say is checked: the container must have a bundle here.
func (l listener) Forward(_ context.Context, request *eventservice.ForwardRequest) (*emptypb.Empty, error) {
	payload := request.GetEnvelope().GetEvent()
	if request.GetEnvelope().GetNamespace() != namespace || !strings.HasSuffix(payload.GetTypeUrl(), "containerd.events.TaskOOM") {
		return empty(), nil
	}
	oom := &events.TaskOOM{}
	if err := proto.Unmarshal(payload.GetValue(), oom); err != nil {
		return empty(), nil
	}
	b, err := l.r.bundle(oom.GetContainerID())
	if err != nil {
		return empty(), nil
	}
	if _, err := b.created(); err == nil {
		_ = os.WriteFile(b.oom(), nil, 0o600) // the counter of the control group tells, too
	}
	return empty(), nil
}
