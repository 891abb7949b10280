package daemon

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/cmd/podd/settings"
)

// TestNoReloadWhileStopping: podd waits for a reload in progress, after which none begins.
func TestNoReloadWhileStopping(t *testing.T) {
	d, loads := &daemon{}, 0
	entered, leave := make(chan struct{}), make(chan struct{})
	d.load = func() (*settings.Loaded, error) {
		loads++
		close(entered)
		<-leave
		return nil, errors.New("broken")
	}
	d.log = logrus.New()
	d.current.Store(&generation{number: 1})
	ctx, cancel := context.WithCancel(t.Context())
	reloaded, awaited := make(chan error, 1), make(chan struct{})
	go func() {
		_, err := d.reload(ctx, nil)
		reloaded <- err
	}()
	<-entered
	cancel()
	go func() {
		d.awaitReload()
		close(awaited)
	}()
	select {
	case <-awaited:
		t.Error("awaitReload() returned during a reload")
	case <-time.After(50 * time.Millisecond):
	}
	close(leave)
	<-awaited
	if err := <-reloaded; err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("reload in progress = %v, want its own error", err)
	}
	if _, err := d.reload(ctx, nil); !errors.Is(err, context.Canceled) || loads != 1 {
		t.Errorf("reload of a podd that stops = %v after %d loads, want %v and one", err, loads, context.Canceled)
	}
}
