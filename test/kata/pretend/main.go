// Command kata-pretend is a remote hypervisor for the shim of Kata Containers, as for its peer pods: a service on a
// unix socket that makes machines. Its machines are only agents that answer as Kata's would. A container runs from its
// start until it is sent a signal, as the command sleep; all other commands end at once. Each call of an agent is a
// line of standard output.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/containerd/ttrpc"
	hypervisor "github.com/kata-containers/kata-containers/src/runtime/protocols/hypervisor"
	agents "github.com/kata-containers/kata-containers/src/runtime/virtcontainers/pkg/agent/protocols/grpc"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: kata-pretend DIRECTORY")
		os.Exit(2)
	}
	fmt.Fprintln(os.Stderr, serve(os.Args[1]))
	os.Exit(1)
}

// serve serves the socket <dir>/hypervisor.
func serve(dir string) error {
	l, err := net.Listen("unix", filepath.Join(dir, "hypervisor"))
	if err != nil {
		return err
	}
	s, err := ttrpc.NewServer()
	if err != nil {
		return err
	}
	hypervisor.RegisterHypervisorService(s, &machines{dir: dir, running: map[string]*ttrpc.Server{}})
	return s.Serve(context.Background(), l)
}

// machines are the agents by the id of their pod.
type machines struct {
	dir     string
	mu      sync.Mutex
	running map[string]*ttrpc.Server
}

// CreateVM starts an agent.
func (m *machines) CreateVM(_ context.Context, r *hypervisor.CreateVMRequest) (*hypervisor.CreateVMResponse, error) {
	fmt.Println("CreateVM", r.Id)
	path := filepath.Join(m.dir, r.Id[:12])
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	s, err := ttrpc.NewServer()
	if err != nil {
		return nil, err
	}
	a := &agent{processes: map[string]*process{}}
	agents.RegisterAgentServiceService(s, a)
	agents.RegisterHealthService(s, a)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running[r.Id] = s
	go func() { _ = s.Serve(context.Background(), l) }()
	return &hypervisor.CreateVMResponse{AgentSocketPath: path}, nil
}

// StartVM has nothing left to start.
func (m *machines) StartVM(context.Context, *hypervisor.StartVMRequest) (*hypervisor.StartVMResponse, error) {
	return &hypervisor.StartVMResponse{}, nil
}

// StopVM stops the agent.
func (m *machines) StopVM(_ context.Context, r *hypervisor.StopVMRequest) (*hypervisor.StopVMResponse, error) {
	fmt.Println("StopVM", r.Id)
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.running[r.Id]; s != nil {
		_ = s.Close()
		delete(m.running, r.Id)
	}
	return &hypervisor.StopVMResponse{}, nil
}

// Version is asked for before anything else.
func (m *machines) Version(context.Context, *hypervisor.VersionRequest) (*hypervisor.VersionResponse, error) {
	return &hypervisor.VersionResponse{Version: "0.0.0"}, nil
}
