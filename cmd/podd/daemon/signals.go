package daemon

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
)

// signals handles the signals sent to the daemon.
type signals struct {
	log logrus.FieldLogger
	// dumpDir returns the directory of goroutine dumps, "" while there is none.
	dumpDir func() string
	// reload asks for a new configuration, and does not wait for it.
	reload func()
	// exit ends the process.
	exit func(code int)
}

// watch returns a context that ends with the first SIGTERM or SIGINT. A second one ends the process.
//
// SIGPIPE is caught so that a closed log pipe (journald restarting) does not kill the daemon. It must not be ignored:
// containers would inherit that.
func (s signals) watch(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	ch := make(chan os.Signal, 16)
	signal.Notify(ch, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGPIPE)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for sig := range ch {
			s.handle(ctx, sig, cancel)
		}
	}()
	return ctx, func() {
		signal.Stop(ch)
		close(ch)
		<-done
		cancel(nil)
	}
}

func (s signals) handle(ctx context.Context, sig os.Signal, cancel context.CancelCauseFunc) {
	switch sig {
	case syscall.SIGHUP:
		s.reload()
	case syscall.SIGUSR1:
		s.dump()
	case syscall.SIGTERM, syscall.SIGINT:
		if ctx.Err() != nil {
			s.log.WithField("signal", sig.String()).Warn("exiting immediately on the second signal")
			s.exit(128 + int(sig.(syscall.Signal)))
			return
		}
		s.log.WithField("signal", sig.String()).Info("stopping, pods keep running")
		cancel(errStopped)
	}
}

// dump writes the stacks of all goroutines to a new file, so that two dumps of a hanging daemon can be compared.
// Without a directory it writes them to the log.
func (s signals) dump() {
	var stacks bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&stacks, 2); err != nil {
		s.log.WithError(err).Error("failed to dump goroutines")
		return
	}
	dir := s.dumpDir()
	if dir == "" {
		s.log.WithField("stacks", stacks.String()).Info("goroutine dump")
		return
	}
	path := filepath.Join(dir, fmt.Sprintf("goroutines-%s.txt", time.Now().UTC().Format("20060102T150405.000000")))
	if err := os.WriteFile(path, stacks.Bytes(), 0o600); err != nil {
		s.log.WithError(err).WithField("stacks", stacks.String()).Error("failed to write the goroutine dump to a file")
		return
	}
	s.log.WithField("file", path).Info("wrote goroutine dump")
}
