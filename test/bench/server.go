package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/daemon"
)

// server is a CRI runtime that is measured. Its pods survive a restart.
type server struct {
	name    string
	kubelet *kubelet
	process process
	// mark is a directory that all its processes have in their command line or cgroup.
	mark    string
	cleanup func() error
	// stages, if not nil, collects the durations of the stages of creations, which podd reports.
	stages *samples
}

// process is the daemon of a server.
type process interface {
	Start(context.Context, ...string) error
	Stop() error
	Pid() int
}

// close removes the pods and stops the server.
func (s *server) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	return errors.Join(s.kubelet.removeAll(ctx), s.kubelet.conn.Close(), s.cleanup())
}

// answers waits until the server answers, which a kubelet would wait for too.
func (k *kubelet) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		attempt, stop := context.WithTimeout(ctx, time.Second)
		_, err := k.runtime.Version(attempt, &cri.VersionRequest{})
		stop()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the server does not answer: %w", err)
		case <-time.After(2 * time.Millisecond):
			k.conn.ResetConnectBackoff()
		}
	}
}

// startPodd starts a podd with the default configuration except for the paths and the given keys.
func (b *bench) startPodd(ctx context.Context, set ...string) (*server, *daemon.Daemon, error) {
	d, err := daemon.New(daemon.Options{
		Registry: b.images.registry, Set: append([]string{`log.level="info"`}, set...), RunOnTmpfs: true,
		NoMasquerade: b.network == plain,
	})
	if err != nil {
		return nil, nil, err
	}
	k, err := newKubelet(d.Socket, d.CgroupParent, d.Dir)
	if err != nil {
		return nil, nil, errors.Join(err, d.Close())
	}
	s := &server{name: "podd", kubelet: k, process: d, mark: d.Dir, cleanup: d.Close}
	if err := d.Start(ctx); err != nil {
		return s, d, err
	}
	return s, d, nil
}
