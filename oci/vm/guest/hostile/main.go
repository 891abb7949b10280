// Command hostile is an agent that attacks the host, for the tests: process 1 of a guest image in place of
// podd-vm-agent. The file /mode of the image says how.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	types "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/ttrpc"
	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/podd-project/podd/oci/vm/guest/env"
	"github.com/podd-project/podd/oci/vm/wire"
)

func main() {
	err := attack()
	fmt.Fprintln(os.Stderr, "hostile agent:", err)
	select {} // the kernel would panic
}

func attack() error {
	if err := unix.Mount("dev", "/dev", "devtmpfs", 0, ""); err != nil {
		return err
	}
	mode, err := os.ReadFile("/mode")
	if err != nil {
		return err
	}
	line, err := openLine(os.Getenv(env.Port))
	if err != nil {
		return err
	}
	switch string(mode) {
	case "garbage": // without end, after a greeting
		_, err = io.Copy(line, io.MultiReader(strings.NewReader(wire.Hello), rand.Reader))
		return err
	case "silent": // an agent that takes all streams and answers none
		return serve(line, func(net.Conn) {})
	case "liar": // one that answers, and floods in addition
		return lie(line)
	}
	return fmt.Errorf("unknown mode %q", mode)
}

// openLine opens the serial line, raw.
func openLine(path string) (*os.File, error) {
	f, err := os.OpenFile(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	t, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		return nil, err
	}
	t.Iflag, t.Oflag, t.Lflag, t.Cflag = 0, 0, 0, unix.CS8|unix.CREAD|unix.CLOCAL
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	return f, errors.Join(unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, t), unix.SetNonblock(int(f.Fd()), true))
}

// serve greets and gives each stream to f.
func serve(line *os.File, f func(net.Conn)) error {
	session, err := greet(line)
	if err != nil {
		return err
	}
	for {
		c, err := session.Accept()
		if err != nil {
			return err
		}
		go f(c)
	}
}

func greet(line *os.File) (*yamux.Session, error) {
	session, err := wire.Guest(wire.NewPaced(line), io.Discard)
	if err == nil {
		_, err = line.WriteString(wire.Hello)
	}
	return session, err
}

// lie gives answers with which the pod runs. It floods the console with text, the host with streams, and each output
// of a container with zeros.
func lie(line *os.File) error {
	session, err := greet(line)
	if err != nil {
		return err
	}
	server, err := ttrpc.NewServer()
	if err != nil {
		return err
	}
	task.RegisterTTRPCTaskService(server, liar{})
	streams := make(tasks)
	go func() { _ = server.Serve(context.Background(), streams) }()
	go func() {
		for {
			fmt.Fprintln(os.Stderr, strings.Repeat("console ", 100))
		}
	}()
	go func() {
		for ; ; time.Sleep(10 * time.Millisecond) {
			if c, err := session.OpenStream(); err == nil {
				go func() { _, _ = c.Write(make([]byte, 1<<20)) }()
			}
		}
	}()
	for {
		c, err := session.Accept()
		if err != nil {
			return err
		}
		go answer(c, streams)
	}
}

func answer(c net.Conn, streams tasks) {
	var h wire.Header
	_ = wire.ReadLine(c, &h)
	switch h.Kind {
	case wire.Task:
		streams <- c
	case wire.Output:
		_ = wire.WriteLine(c, wire.Result{})
		_, _ = io.Copy(c, zeros{})
	case wire.Halt:
	default:
		_ = wire.WriteLine(c, wire.Result{})
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// tasks is the listener of the streams that carry the task API.
type tasks chan net.Conn

func (t tasks) Accept() (net.Conn, error) { return <-t, nil }
func (tasks) Close() error                { return nil }
func (tasks) Addr() net.Addr              { return &net.UnixAddr{} }

// liar is a task service. The calls that it does not have, as Wait, Kill and Delete, answer never.
type liar struct{}

const manyBytes = 1 << 20

// lies is text that is long and could control a terminal.
func lies() error { return errors.New(strings.Repeat("\x1b[2J lies ", manyBytes/10)) }

func never(ctx context.Context) error {
	<-ctx.Done()
	select {}
}

func (liar) Create(context.Context, *task.CreateTaskRequest) (*task.CreateTaskResponse, error) {
	return &task.CreateTaskResponse{Pid: 1<<32 - 1}, nil
}

func (liar) Start(context.Context, *task.StartRequest) (*task.StartResponse, error) {
	return &task.StartResponse{Pid: 1}, nil
}

func (liar) State(_ context.Context, r *task.StateRequest) (*task.StateResponse, error) {
	return &task.StateResponse{
		ID: "../" + r.GetID(), Bundle: "/", Pid: 1, Status: types.Status_RUNNING, Stdin: "/etc/passwd", Stdout: "/etc/shadow",
	}, nil
}

func (liar) Stats(context.Context, *task.StatsRequest) (*task.StatsResponse, error) {
	return &task.StatsResponse{Stats: &anypb.Any{TypeUrl: "lies", Value: make([]byte, manyBytes)}}, nil
}

func (liar) Exec(context.Context, *task.ExecProcessRequest) (*emptypb.Empty, error) {
	return nil, lies()
}
func (liar) Update(context.Context, *task.UpdateTaskRequest) (*emptypb.Empty, error) {
	return nil, lies()
}

func (liar) Wait(ctx context.Context, _ *task.WaitRequest) (*task.WaitResponse, error) {
	return nil, never(ctx)
}

func (liar) Delete(ctx context.Context, _ *task.DeleteRequest) (*task.DeleteResponse, error) {
	return nil, never(ctx)
}

func (liar) Kill(ctx context.Context, _ *task.KillRequest) (*emptypb.Empty, error) {
	return nil, never(ctx)
}

func (liar) Pids(context.Context, *task.PidsRequest) (*task.PidsResponse, error) { return nil, lies() }
func (liar) Pause(context.Context, *task.PauseRequest) (*emptypb.Empty, error)   { return nil, lies() }
func (liar) Resume(context.Context, *task.ResumeRequest) (*emptypb.Empty, error) { return nil, lies() }
func (liar) Checkpoint(context.Context, *task.CheckpointTaskRequest) (*emptypb.Empty, error) {
	return nil, lies()
}
func (liar) ResizePty(context.Context, *task.ResizePtyRequest) (*emptypb.Empty, error) {
	return nil, lies()
}
func (liar) CloseIO(context.Context, *task.CloseIORequest) (*emptypb.Empty, error) {
	return nil, lies()
}
func (liar) Connect(context.Context, *task.ConnectRequest) (*task.ConnectResponse, error) {
	return nil, lies()
}
func (liar) Shutdown(context.Context, *task.ShutdownRequest) (*emptypb.Empty, error) {
	return nil, lies()
}
