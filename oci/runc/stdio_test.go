package runc

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci/process"
)

// owner returns the owner of an open file.
func owner(t *testing.T, f *os.File) ids {
	t.Helper()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	st := info.Sys().(*syscall.Stat_t)
	return ids{int(st.Uid), int(st.Gid)}
}

// TestPipesInUserNamespace: the pipes of a process in a user namespace get an owner that is mapped in it.
func TestPipesInUserNamespace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	before := ids{os.Geteuid(), os.Getegid()}
	mapping := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 300000, Size: 65536}}
	for name, c := range map[string]struct {
		userns bool
		uid    uint32
		want   ids
	}{
		"root":       {true, 0, ids{300000, 300000}},
		"user":       {true, 1000, ids{301000, 300000}},
		"not mapped": {true, 70000, before},
		"host":       {false, 1000, before},
	} {
		t.Run(name, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			defer w.Close()
			execPipe, execEnd, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer execPipe.Close()
			defer execEnd.Close()
			cmd := exec.Command("sleep", "1000")
			cmd.Stdout = w
			if c.userns {
				cmd.SysProcAttr = &syscall.SysProcAttr{
					Cloneflags: syscall.CLONE_NEWUSER, UidMappings: mapping, GidMappings: mapping,
				}
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}()
			init, err := process.Identify(cmd.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			p := &specs.Process{User: specs.User{UID: c.uid}}
			if err := chownInitPipes(init, p); err != nil {
				t.Errorf("chownInitPipes = %v, want nil", err)
			}
			if got := owner(t, w); got != c.want {
				t.Errorf("owner of the first process' stdout = %v, want %v", got, c.want)
			}
			if err := chownExecPipes(init, p, [3]*os.File{nil, execEnd, execEnd}); err != nil {
				t.Errorf("chownExecPipes = %v, want nil", err)
			}
			if got := owner(t, execEnd); got != c.want {
				t.Errorf("owner of a command's stdout = %v, want %v", got, c.want)
			}
		})
	}
	gone, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	init, _ := process.Identify(gone.Pid)
	_, _ = gone.Wait()
	if err := chownInitPipes(init, &specs.Process{}); err != nil {
		t.Errorf("chownInitPipes of a dead process = %v, want nil", err)
	}
}
