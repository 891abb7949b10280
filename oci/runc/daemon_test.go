package runc_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/ocitest"
	"github.com/podd-project/podd/oci/runc"
)

// order is the test's request to the process that plays the daemon.
type order struct {
	Config  runc.Config
	Request request
}

// request has no Spec if the container was created before.
type request struct {
	ID, LogPath string
	Spec        *specs.Spec
}

const orderVariable = "OCI_TEST_ORDER"

// TestMain plays the daemon that is killed, when TestDaemonKilled runs this binary again.
func TestMain(m *testing.M) {
	text, ok := os.LookupEnv(orderVariable)
	if !ok {
		os.Exit(m.Run())
	}
	if err := obey(text); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("started")
	select {} // until it is killed
}

func obey(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	r := runc.New(o.Config)
	ctx, cancel := contextWithLimit()
	defer cancel()
	if o.Request.Spec != nil {
		request := oci.CreateRequest{ID: o.Request.ID, Spec: o.Request.Spec, Log: ocitest.LogAt(o.Request.LogPath)}
		if _, err := r.Create(ctx, request); err != nil {
			return err
		}
	}
	return r.Start(ctx, o.Request.ID)
}

// TestDaemonKilled kills the daemon, with its process group, under a container that prints. No line is lost,
// the container does not notice, and the next daemon gets its exit status.
func TestDaemonKilled(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		const count = 200
		path := filepath.Join(m.LogDir, "0.log")
		script := fmt.Sprintf("i=0; while [ $i -lt %d ]; do i=$((i+1)); echo line $i; sleep 0.005; done; exit 6", count)
		text, err := json.Marshal(order{m.Config, request{ID: "c", LogPath: path, Spec: m.Spec(sh(script)...)}})
		must(t, "encode", err)

		t.Cleanup(func() { must(t, "delete", m.New().Delete(limit(t), "c")) })
		killDaemon(t, string(text))
		before := len(lines(t, path))
		exit, err := m.New().Wait(limit(t), "c")
		if err != nil || exit.Code != 6 || !exit.Known {
			t.Errorf("exit = %+v, %v, want code 6, known", exit, err)
		}
		got := lines(t, path)
		if len(got) != count || got[count-1] != fmt.Sprintf("line %d", count) {
			t.Errorf("%d lines in the log, want %d", len(got), count)
		}
		if before >= count {
			t.Errorf("%d lines before the daemon was killed, want fewer than %d", before, count)
		}
	})
}

// killDaemon runs this binary as a daemon that obeys, and kills it once the container runs.
func killDaemon(t *testing.T, order string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), orderVariable+"="+order)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	must(t, "pipe", err)
	must(t, "start", cmd.Start())
	timer := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	answer := make([]byte, 1000)
	n, _ := out.Read(answer)
	must(t, "kill", syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL))
	_ = cmd.Wait() // reports the kill
	if string(answer[:n]) != "started\n" {
		t.Fatalf("the daemon printed %q, want %q", answer[:n], "started\n")
	}
}
