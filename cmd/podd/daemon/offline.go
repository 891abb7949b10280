package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/podd-project/podd/cmd/podd/settings"
)

// Offline calls do with a node that does not serve, for commands that work on the state of a stopped daemon. It holds
// the lock of the state directories until do returns, and logs warnings and errors to w.
func Offline(ctx context.Context, version string, l *settings.Loaded, w io.Writer,
	do func(ctx context.Context, n *Node) error) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("this command must run as root")
	}
	logging := l.Log
	if logging.Level == settings.Default().Log.Level {
		logging.Level = "warning" // the daemon's info messages are noise here
	}
	log, err := setUpLogging(logging, w)
	if err != nil {
		return settings.Error{Err: err}
	}
	syscall.Umask(0o022)
	d := &daemon{version: version, cfg: l.Config, log: log}
	ctx, cancel := context.WithCancelCause(ctx)
	defer func() {
		cancel(errStopped)
		d.background.Wait()
		err = errors.Join(err, d.undoStart())
	}()
	if err := d.open(); err != nil {
		return fmt.Errorf("%w (is the daemon running?)", err)
	}
	n, err := d.mechanisms(ctx)
	if err != nil {
		return err
	}
	return do(ctx, n)
}
