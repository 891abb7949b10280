package child

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.podman.io/storage/pkg/reexec"
)

// jobProbe does what its job says.
const jobProbe = "podd-test-job"

func init() {
	reexec.Register(jobProbe, func() {
		input := bufio.NewReader(os.Stdin)
		var job string
		if err := json.NewDecoder(input).Decode(&job); err != nil {
			Fail(err)
		}
		fmt.Fprintln(os.Stderr, "does "+job)
		switch job {
		case "ask":
			fmt.Println(`"question"`)
			line, _ := input.ReadString('\n') // the end of the job's line
			if line == "\n" {
				line, _ = input.ReadString('\n')
			}
			fmt.Print(line)
		case "wait for the end of the input":
			_, _ = io.Copy(io.Discard, input)
			fmt.Println(`"ended"`)
		case "tell the pid":
			fmt.Println(os.Getpid())
			_, _ = io.Copy(io.Discard, input)
		case "hang":
			select {}
		case "long line":
			fmt.Println(strings.Repeat("x", MaxMessage))
		case "fail":
			Fail(errors.New(strings.Repeat("y", 2*maxStderr)))
		}
		os.Exit(0)
	})
}

func TestMain(m *testing.M) {
	if reexec.Init() {
		return
	}
	os.Exit(m.Run())
}

// runProbe runs jobProbe, and returns its messages.
func runProbe(ctx context.Context, t *testing.T, p Process, take func(string) (any, error)) (Exit, []string) {
	t.Helper()
	p.Name, p.Attributes = jobProbe, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var got []string
	exit, err := Run(ctx, p, func(line []byte) (any, error) {
		got = append(got, string(line))
		if take == nil {
			return nil, nil
		}
		return take(string(line))
	})
	if err != nil {
		t.Fatal(err)
	}
	return exit, got
}

// TestRun: a job goes in, messages come out, a reply goes in.
func TestRun(t *testing.T) {
	t.Parallel()
	exit, got := runProbe(t.Context(), t, Process{Job: "ask"}, func(line string) (any, error) {
		if line == `"question"` {
			return "reply", nil
		}
		return nil, nil
	})
	if want := `"question" "reply"`; strings.Join(got, " ") != want || exit.Err != nil || exit.IO != nil {
		t.Errorf("messages %q, %+v, want %s and no error", got, exit, want)
	}
	if exit.Stderr != "does ask\n" {
		t.Errorf("standard error %q, want its line", exit.Stderr)
	}
}

// TestRunFails: a process that fails, writes too long a line, or a message that is refused, end the run with an error.
func TestRunFails(t *testing.T) {
	t.Parallel()
	exit, _ := runProbe(t.Context(), t, Process{Job: "fail"}, nil)
	if exit.Err == nil || len(exit.Stderr) != maxStderr || !strings.HasPrefix(exit.Stderr, "does fail\nyyy") {
		t.Errorf("%v, %d bytes of standard error, want an error and the first %d", exit.Err, len(exit.Stderr), maxStderr)
	}
	if exit, _ := runProbe(t.Context(), t, Process{Job: "long line"}, nil); !errors.Is(exit.IO, bufio.ErrTooLong) {
		t.Errorf("a line of %d bytes: %v, want %v", MaxMessage+1, exit.IO, bufio.ErrTooLong)
	}
	refused := errors.New("refused")
	exit, _ = runProbe(t.Context(), t, Process{Job: "ask"}, func(string) (any, error) { return nil, refused })
	if !errors.Is(exit.IO, refused) || exit.Err == nil {
		t.Errorf("a refused message: %+v, want it killed, and the error", exit)
	}
}

// TestLateKill: a process that exits within its grace is not killed later: its pid may belong to another one then.
func TestLateKill(t *testing.T) {
	const grace = 3 * time.Second
	ctx, cancel := context.WithCancel(t.Context())
	start := time.Now()
	_, got := runProbe(ctx, t, Process{Job: "tell the pid", Grace: grace}, func(string) (any, error) {
		cancel()
		return nil, nil
	})
	pid, err := strconv.Atoi(strings.Join(got, ""))
	if err != nil {
		t.Fatal(err)
	}
	var other *exec.Cmd
	for other == nil {
		if time.Since(start) > grace/2 {
			t.Skipf("no process has got the pid %d", pid)
		}
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(pid-1)), 0); err != nil {
			t.Skip(err)
		}
		cmd := exec.Command("/bin/sleep", "100")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if cmd.Process.Pid == pid {
			other = cmd
			continue
		}
		_ = errors.Join(cmd.Process.Kill(), cmd.Wait()) // killed
	}
	time.Sleep(time.Until(start.Add(grace + time.Second)))
	err = errors.Join(other.Process.Signal(syscall.SIGTERM), other.Wait())
	if status, ok := other.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGTERM {
		t.Errorf("another process with the pid ended with %v, want that only this test's SIGTERM ends it", err)
	}
}

// TestRunIsCancelled: a process whose context ends can clean up when its input ends; one that does not is killed.
func TestRunIsCancelled(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		job   string
		grace time.Duration
		want  string
	}{
		{"wait for the end of the input", time.Minute, `"ended"`},
		{"hang", 0, ""},
		{"hang", time.Millisecond, ""},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		exit, got := runProbe(ctx, t, Process{Job: c.job, Grace: c.grace}, nil)
		if strings.Join(got, " ") != c.want || (exit.Err == nil) != (c.want != "") {
			t.Errorf("%s: messages %q, %+v, want %q", c.job, got, exit, c.want)
		}
	}
}
