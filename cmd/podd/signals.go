package main

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

// signals reacts to what is sent to the daemon, until the process ends.
type signals struct {
	log logrus.FieldLogger
	// dumpDir is where goroutine dumps go, once there is a directory.
	dumpDir func() string
	// exit ends the process.
	exit func(code int)
}

// watch returns a context that ends with the first SIGTERM or SIGINT; the second ends the process.
//
// SIGPIPE is caught so that a log that nobody reads any more (journald restarting) does not kill the daemon.
// It must not be ignored: an ignored signal stays ignored in every container.
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
		s.log.Warn("SIGHUP: reloading the configuration is not supported yet, restart the daemon instead: pods keep running")
	case syscall.SIGUSR1:
		s.dump()
	case syscall.SIGTERM, syscall.SIGINT:
		if ctx.Err() != nil {
			s.log.WithField("signal", sig.String()).Warn("second signal, exiting at once")
			s.exit(128 + int(sig.(syscall.Signal)))
			return
		}
		s.log.WithField("signal", sig.String()).Info("stopping, pods keep running")
		cancel(errStopped)
	}
}

// dump writes the stacks of all goroutines to a file of its own, so that two dumps of a daemon that hangs can
// be compared; without a directory it writes them to the log.
func (s signals) dump() {
	var stacks bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&stacks, 2); err != nil {
		s.log.WithError(err).Error("goroutines could not be dumped")
		return
	}
	dir := s.dumpDir()
	if dir == "" {
		s.log.WithField("stacks", stacks.String()).Info("goroutines")
		return
	}
	path := filepath.Join(dir, fmt.Sprintf("goroutines-%s.txt", time.Now().UTC().Format("20060102T150405.000000")))
	if err := os.WriteFile(path, stacks.Bytes(), 0o600); err != nil {
		s.log.WithError(err).WithField("stacks", stacks.String()).Error("goroutines could not be written to a file")
		return
	}
	s.log.WithField("file", path).Info("goroutines dumped")
}
