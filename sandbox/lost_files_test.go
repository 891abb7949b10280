package sandbox

import (
	"os/exec"
	"testing"

	"github.com/podd-project/podd/oci/process"
	"github.com/podd-project/podd/sandbox/record"
)

// TestLostFiles: a process whose container the runtime has lost, as after the run directory was emptied or is another
// one, ends when podd records its exit, so that no second instance can run. One of an earlier boot is another process.
func TestLostFiles(t *testing.T) {
	for bootID, want := range map[string]bool{"boot-1": true, "boot-2": false} {
		m := newMachine(t)
		e, h := newEngineAt(t, m, "boot-1")
		pod := mustRunPod(t, e, "web")
		id := mustCreate(t, e, pod, "main")
		mustStart(t, e, id)
		cmd := exec.Command("sleep", "1000")
		must(t, cmd.Start())
		defer func() { _ = cmd.Process.Kill() }()
		first, err := process.Identify(cmd.Process.Pid)
		must(t, err)
		c, err := e.Container(id)
		must(t, err)
		must(t, c.observe(record.ContainerRunning, func(s *record.ContainerStatus) { s.Process = first }))
		kill(e, h)
		must(t, m.runtimes["runc"].Delete(t.Context(), id))

		e, _ = newEngineAt(t, m, bootID)
		waitExited(t, e, id)
		must(t, e.RemovePod(t.Context(), pod))
		if got := !first.Alive(); got != want {
			t.Errorf("booted as %s: killed = %v, want %v", bootID, got, want)
		}
	}
}
