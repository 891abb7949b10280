package guest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/emptypb"
)

// taskService is the task service of runc, which kills a command with all processes that it has started, and tells the
// host of out-of-memory kills in a container before it reports the container's exit.
type taskService struct {
	task.TTRPCTaskService
	groups *groups
	// tellOOM reports an out-of-memory kill in a container to the host; it returns after a timeout at the latest.
	tellOOM func(id string)
	shares  *shares
	// forget has the kernel forget the files that nothing uses.
	forget func()
}

// Kill sends a signal. A command that is killed takes its descendants along: a probe that timed out must leave nothing.
func (s taskService) Kill(ctx context.Context, r *task.KillRequest) (*emptypb.Empty, error) {
	if r.GetExecID() != "" && r.GetSignal() == uint32(unix.SIGKILL) {
		state, err := s.State(ctx, &task.StateRequest{ID: r.GetID(), ExecID: r.GetExecID()})
		if err == nil && state.GetPid() > 1 {
			killDescendants(int(state.GetPid()))
		}
	}
	return s.TTRPCTaskService.Kill(ctx, r)
}

// killDescendants kills all descendants of a process. Each is stopped before its children are listed, so that none can
// be added.
func killDescendants(pid int) {
	_ = unix.Kill(pid, unix.SIGSTOP)
	for _, child := range children(pid) {
		killDescendants(child)
		_ = unix.Kill(child, unix.SIGKILL)
	}
}

// children returns the processes whose parent is pid.
func children(pid int) (found []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // it has just ended
		}
		// The name of the program, in parentheses, may contain anything.
		_, rest, _ := strings.Cut(string(data[strings.LastIndexByte(string(data), ')')+1:]), " ")
		var state string
		var parent int
		if _, err := fmt.Sscan(rest, &state, &parent); err != nil || parent != pid {
			continue
		}
		if child, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			found = append(found, child)
		}
	}
	return found
}
