package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/podd-project/podd/cmd/podd/settings"
	"github.com/podd-project/podd/cmd/podd/state"
	"github.com/podd-project/podd/oci/subprocess"
)

// Serve runs the daemon until a signal stops it or ctx ends. It logs to w. load reads the configuration, at the start
// and at each reload.
func Serve(ctx context.Context, version string, load func() (*settings.Loaded, error), w io.Writer) error {
	notify := newNotifier()
	l, err := load()
	if err != nil {
		return err
	}
	log, err := setUpLogging(l.Log, w)
	if err != nil {
		return settings.Error{Err: err}
	}
	if os.Geteuid() != 0 {
		return errors.New("podd must run as root: it creates namespaces, mounts and cgroups")
	}
	if err := errors.Join(closeDescriptorsOnExec(), subprocess.ResetProcess()); err != nil {
		return err
	}
	syscall.Umask(0o022) // containers under any uid must be able to read shared files
	d := &daemon{
		version: version, cfg: l.Config, values: l.Values(), log: log, notify: notify, gc: newGCTuner(),
		load: load, reloads: make(chan struct{}, 1),
	}
	ctx, stop := signals{log: log, dumpDir: d.dumpDir, reload: d.requestReload, exit: os.Exit}.watch(ctx)
	defer stop()
	log.WithFields(logrus.Fields{"version": version, "pid": os.Getpid(), "files": l.Files}).Info("starting podd")
	if err := d.run(ctx); err != nil {
		return err
	}
	log.Info("podd stopped")
	return nil
}

// run starts the daemon, serves until ctx ends and shuts down. It returns nil if ctx ended because of a signal, also
// during the start.
func (d *daemon) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	err := d.startAndServe(ctx)
	asked := errors.Is(context.Cause(ctx), errStopped)
	cancel(errStopped)
	d.awaitReload() // a reload adds to background and closers
	d.background.Wait()
	closeErr := d.undoStart()
	if !asked {
		return errors.Join(err, closeErr)
	}
	if closeErr != nil { // the next daemon cleans up
		d.log.WithError(closeErr).Warn("failed to shut down completely")
	}
	if err != nil {
		d.log.WithError(err).Info("stopped during the start")
	}
	return nil
}

func (d *daemon) startAndServe(ctx context.Context) error {
	if err := d.open(); err != nil {
		return err
	}
	n, err := d.build(ctx)
	if err != nil {
		return err
	}
	if err := d.takeOver(ctx, n); err != nil {
		return err
	}
	return d.serve(ctx, n)
}

// open creates and locks the state directories.
func (d *daemon) open() error {
	st, err := state.Open(d.cfg.Root, d.cfg.Run, d.version, d.log)
	if err != nil {
		return err
	}
	d.onClose("state", st.Close)
	d.cfg.Resolve(st.Root, st.Run)
	d.openDir.Store(&st.Run)
	return nil
}

// takeOver takes over the pods of the previous daemon. A damaged record does not keep the daemon from starting.
func (d *daemon) takeOver(ctx context.Context, n *Node) error {
	d.notify.send(d.log, "STATUS=recovering pods")
	start := time.Now()
	if err := n.Engine.Recover(ctx); err != nil {
		return fmt.Errorf("recover pods: %w", err)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	d.log.WithFields(logrus.Fields{
		"pods": len(n.Engine.Pods()), "containers": len(n.Engine.Containers()),
		"duration": time.Since(start).Round(time.Millisecond).String(),
	}).Info("recovered pods")
	d.background.Go(func() { n.preload(ctx, d.log) })
	d.background.Go(func() { n.Engine.RunGC(ctx) })
	return nil
}

// serve serves calls until ctx ends.
func (d *daemon) serve(ctx context.Context, n *Node) error {
	sock, err := state.Listen(d.cfg.Listen, state.SocketMode, d.log)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	var calls inflight
	options := append(d.observers.grpcOptions(), n.server.Options()...)
	srv := grpc.NewServer(append(options, grpc.ChainUnaryInterceptor(calls.count, d.gc.duringPull))...)
	n.server.Register(srv)
	health := newHealth(srv)
	check, closeCheck, err := selfCheck(d.cfg.Listen)
	if err != nil {
		return errors.Join(err, sock.Close())
	}
	d.onClose("connection of the watchdog", closeCheck)

	d.background.Go(func() { d.reloadOnRequest(ctx, n) })
	d.serveAdmin(ctx, n)
	d.serveMetrics(ctx, n)
	d.servePlugins(ctx, n)
	d.serveCadvisor(ctx, n)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(sock) }()
	setHealth(health, healthpb.HealthCheckResponse_SERVING)
	d.background.Go(func() { d.notify.watchdog(ctx, d.log, check) })
	d.notify.send(d.log, "READY=1\nSTATUS=serving on "+d.cfg.Listen)
	d.log.WithField("socket", d.cfg.Listen).Info("serving")

	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err) // not stopped by a signal
	case <-ctx.Done():
	}
	d.notify.send(d.log, "STOPPING=1\nSTATUS=stopping, pods keep running")
	health.Shutdown()
	drain(srv, &calls, drainTimeout, d.log)
	return <-served
}
