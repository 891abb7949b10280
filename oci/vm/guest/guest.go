// Package guest is the agent of a pod's virtual machine: process 1 of its initial RAM file system. It sets up the
// machine, serves containerd's task service of runc to the shim on the host, and copies the containers' streams. It
// trusts the host, which controls the machine anyway.
package guest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	taskservice "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/task"
	"github.com/containerd/containerd/v2/pkg/shutdown"
	"github.com/containerd/containerd/v2/pkg/sys/reaper"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/vm/wire"
)

// Main runs the agent and never returns: when process 1 ends, the kernel panics. When the session with the host ends,
// it powers off.
func Main() {
	fmt.Fprintln(os.Stderr, "podd-vm-agent:", run())
	powerOff()
	select {}
}

// run returns why the agent cannot go on.
func run() error {
	if err := prepareMachine(); err != nil {
		return err
	}
	line, err := openLine()
	if err != nil {
		return err
	}
	a, err := newAgent(line)
	if err != nil {
		return err
	}
	return a.serve()
}

// agent serves the host's streams.
type agent struct {
	host host
	// tasks takes the streams that carry the task API.
	tasks chan net.Conn
}

func newAgent(line *line) (*agent, error) {
	a := &agent{host: host{one: make(chan struct{}, 1)}, tasks: make(chan net.Conn)}
	ctx, stop := shutdown.WithShutdown(context.Background())
	service, err := taskservice.NewTaskService(ctx, publisher{&a.host}, stop)
	if err != nil {
		return nil, fmt.Errorf("task service: %w", err)
	}
	server, err := ttrpc.NewServer()
	if err != nil {
		return nil, fmt.Errorf("ttrpc: %w", err)
	}
	task.RegisterTTRPCTaskService(server, taskService{
		TTRPCTaskService: service, groups: newGroups(cgroupRoot), shares: newShares(), tellOOM: a.host.tellOOM,
		forget: dropCaches,
	})
	go reapChildren()
	go boundCaches()
	if a.host.session, err = wire.Guest(line, os.Stderr); err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	go func() { _ = server.Serve(ctx, listener{a.tasks}) }()
	return a, line.greet()
}

// reapChildren collects every child that ends, for the task service.
func reapChildren() {
	ended := make(chan os.Signal, 128)
	signal.Notify(ended, unix.SIGCHLD)
	for range ended {
		_ = reaper.Reap()
	}
}

// serve serves streams until the session ends.
func (a *agent) serve() error {
	for {
		c, err := a.host.session.Accept()
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		go a.serveStream(c)
	}
}

func (a *agent) serveStream(c net.Conn) {
	var h wire.Header
	if err := wire.ReadLine(c, &h); err != nil {
		_ = c.Close()
		return
	}
	switch h.Kind {
	case wire.Task:
		a.tasks <- c
		return
	case wire.Setup:
		wire.Answer(c, setUp(c))
	case wire.Output:
		copyOutput(c, h.Path)
	case wire.Input:
		copyInput(c, h.Path)
	case wire.Release:
		wire.Answer(c, releasePipe(h.Path))
	case wire.Online:
		wire.Answer(c, useProcessors(sysProcessors, h.CPUs))
	case wire.Halt:
		powerOff()
	default:
		wire.Answer(c, fmt.Errorf("this guest knows no stream of kind %q", h.Kind))
	}
	_ = c.Close()
}

// haltDelay is how long writing the file systems may take before the machine is switched off.
const haltDelay = 5 * time.Second

func powerOff() {
	synced := make(chan struct{})
	go func() { unix.Sync(); close(synced) }()
	select {
	case <-synced:
	case <-time.After(haltDelay):
	}
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// listener makes a net.Listener of accepted streams.
type listener struct{ streams <-chan net.Conn }

func (l listener) Accept() (net.Conn, error) {
	c, ok := <-l.streams
	if !ok {
		return nil, errors.New("no more streams")
	}
	return c, nil
}

func (listener) Close() error   { return nil }
func (listener) Addr() net.Addr { return &net.UnixAddr{Name: "host", Net: "unix"} }
