package shim

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	eventsapi "github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/v2/core/runtime"
	"github.com/containerd/log"

	"github.com/podd-project/podd/oci/vm/wire"
)

// headerTimeout is how long the guest may take to say the purpose of a stream that it opened.
const headerTimeout = 10 * time.Second

// watchEvents takes the streams that the guest opens, one at a time, until the session ends.
func (s *Service) watchEvents(p *pod) {
	for {
		c, err := p.session.Accept()
		if err != nil {
			return
		}
		err = s.takeEvent(p, c)
		_ = c.SetWriteDeadline(time.Now().Add(headerTimeout))
		wire.Answer(c, err)
		awaitEnd(c)
	}
}

// awaitEnd waits until the guest has closed its end of a stream, then closes it. yamux keeps a stream that only the
// host has closed, with all that arrives, so a guest could make the host keep any number of them. A guest that does not
// close one holds back its own events only.
func awaitEnd(c net.Conn) {
	_ = c.SetReadDeadline(noDeadline)
	_, _ = io.Copy(io.Discard, c)
	_ = c.Close()
}

// oomPause is the time between two out-of-memory kills of a container that are published. Those between them say
// nothing new, and a guest can send any number.
const oomPause = time.Second

// takeEvent publishes the event of an out-of-memory kill, if the container exists.
func (s *Service) takeEvent(p *pod, c net.Conn) error {
	_ = c.SetReadDeadline(time.Now().Add(headerTimeout))
	var h wire.Header
	if err := wire.ReadLine(c, &h); err != nil {
		return errors.New("malformed event")
	}
	if h.Kind != wire.Event || !p.noteKill(h.ID, time.Now()) {
		return nil
	}
	if err := s.publishKill(h.ID); err != nil {
		log.L.WithError(err).Warn("failed to publish an out-of-memory kill")
		return errors.New("the event was not published")
	}
	return nil
}

// publishTimeout bounds the attempts to publish an event, publishPause is the time between two: who takes events may
// have been killed and is being restarted.
const publishTimeout, publishPause = 10 * time.Second, 300 * time.Millisecond

func (s *Service) publishKill(id string) error {
	ctx, cancel := context.WithTimeout(s.ctx, publishTimeout)
	defer cancel()
	for {
		err := s.publisher.Publish(ctx, runtime.TaskOOMEventTopic, &eventsapi.TaskOOM{ContainerID: id})
		if err == nil {
			return nil
		}
		select {
		case <-time.After(publishPause):
		case <-ctx.Done():
			return err
		}
	}
}

// noteKill reports whether an out-of-memory kill is to be published: of a container that exists, and not right after
// another one.
func (p *pod) noteKill(id string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, exists := p.containers[id]
	if !exists || now.Sub(last) < oomPause {
		return false
	}
	p.containers[id] = now
	return true
}
