package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// flood prints numbers, 1000 every 50 ms, until the file stop exists. Then it writes to the file result how many, and
// the longest time that 1000 took, in units of 10 ms.
const flood = `n=0; worst=0
while [ ! -e /dev/shm/stop ]; do
	read a x </proc/uptime
	seq $((n+1)) $((n+1000)); n=$((n+1000))
	read b x </proc/uptime
	took=$(( ${b%.*}${b#*.} - ${a%.*}${a#*.} ))
	[ $took -le $worst ] || worst=$took
	[ $took -ge 5 ] || sleep 0.04
done
echo $n $worst >/dev/shm/result`

// TestDaemonAway kills the daemon and starts the next one after 10 s. Meanwhile a container logs 20,000 lines a second,
// the kubelet rotates the log every second, one container exits and one is OOM-killed.
func TestDaemonAway(t *testing.T) {
	t.Parallel()
	k := start(t)
	away := soak(10*time.Second, 2*time.Minute)
	logging, logCfg := k.pod()
	shm := k.shm(logging)
	writer, cfg := k.runIn(logging, logCfg, []string{"sh", "-c", flood})
	pod, podCfg := k.pod()
	wait := "while [ ! -e /dev/shm/go ]; do sleep 0.05; done; "
	exits, _ := k.runIn(pod, podCfg, []string{"sh", "-c", wait + "exit 7"})
	greedy, _ := k.runIn(pod, podCfg, []string{"sh", "-c", wait + "exec tail /dev/zero"}, func(c *cri.ContainerConfig) {
		c.Linux.Resources.MemoryLimitInBytes, c.Linux.Resources.MemorySwapLimitInBytes = 64<<20, 64<<20
	})

	r := &rotation{k: k, container: writer, path: filepath.Join(logCfg.LogDirectory, cfg.LogPath)}
	r.every(time.Second, 3*time.Second)
	k.ok("kill podd", k.Kill9())
	gone := time.Now()
	k.ok("let two containers end", os.WriteFile(k.shm(pod)+"/go", nil, 0o644))
	before := r.lines()
	r.every(time.Second, away)
	written := r.lines() - before
	r.keepRotated = true
	r.rotate()
	back := time.Now()
	k.ok("start podd", k.Start(k.ctx()))
	r.reopen()
	r.every(time.Second, 2*time.Second)

	for id, want := range map[string]*cri.ContainerStatus{exits: {ExitCode: 7, Reason: "Error"},
		greedy: {ExitCode: 137, Reason: "OOMKilled"}} {
		s := k.exited(id)
		if s.ExitCode != want.ExitCode || s.Reason != want.Reason {
			t.Errorf("exit while no daemon ran: exit code = %d, reason = %s, want %d, %s", s.ExitCode, s.Reason,
				want.ExitCode, want.Reason)
		}
		if at := time.Unix(0, s.FinishedAt); at.Before(gone.Add(-time.Second)) || at.After(back.Add(-away/2)) {
			t.Errorf("finished_at = %v, want it soon after %v, when the daemon was killed; the next one started at %v", at,
				gone, back)
		}
	}
	k.ok("stop the writer", os.WriteFile(shm+"/stop", nil, 0o644))
	if s := k.exited(writer); s.ExitCode != 0 {
		t.Errorf("status of the writer = %v, want exit code 0", s)
	}
	result, err := os.ReadFile(shm + "/result")
	k.ok("read the writer's result", err)
	var total, worst int
	_, err = fmt.Sscan(string(result), &total, &worst)
	k.ok("parse the writer's result", err)
	partial := r.checkComplete(total)
	t.Logf("%d lines in %d files, %d partial; %.0f lines a second without a daemon; longest pause of the writer %d ms",
		total, len(r.files), partial, float64(written)/away.Seconds(), worst*10)
	if time.Duration(worst)*10*time.Millisecond > away/2 {
		t.Errorf("longest pause of the writer = %d ms, want at most %v", worst*10, away/2)
	}
	if float64(written) < 1000*away.Seconds() {
		t.Errorf("lines written without a daemon = %d, want at least %.0f", written, 1000*away.Seconds())
	}
}

// rotation rotates a container's log as the kubelet does: it renames the file and calls ReopenContainerLog; if the call
// fails it renames the file back and tries again the next time. So no log is rotated while no daemon runs: the monitor
// has the file open, and only the daemon can make it open a new one.
type rotation struct {
	k         *kubelet
	container string
	path      string
	// files are the rotated files, oldest first.
	files []string
	// keepRotated does not rename the file back, like a kubelet that dies before it can.
	keepRotated bool
}

// every rotates the log at the interval for a time.
func (r *rotation) every(interval, during time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for end := time.Now().Add(during); time.Now().Before(end); {
		<-tick.C
		r.rotate()
	}
}

func (r *rotation) rotate() {
	r.k.Helper()
	away := fmt.Sprintf("%s.%d", r.path, len(r.files))
	r.k.ok("move the log away", os.Rename(r.path, away))
	_, err := r.k.Runtime.ReopenContainerLog(r.k.ctx(), &cri.ReopenContainerLogRequest{ContainerId: r.container})
	if err != nil && r.k.Running() {
		r.k.Errorf("ReopenContainerLog: %v", err)
	}
	if err != nil && !r.keepRotated {
		r.k.ok("move the log back", os.Rename(away, r.path))
		return
	}
	r.files = append(r.files, away)
}

func (r *rotation) reopen() {
	r.k.Helper()
	_, err := r.k.Runtime.ReopenContainerLog(r.k.ctx(), &cri.ReopenContainerLogRequest{ContainerId: r.container})
	r.k.ok("ReopenContainerLog", err)
}

// lines returns the number of lines in all files.
func (r *rotation) lines() (n int) {
	r.k.Helper()
	for _, f := range append([]string{r.path}, r.files...) {
		data, err := os.ReadFile(f)
		r.k.ok("read the log", err)
		n += strings.Count(string(data), "\n")
	}
	return n
}

// checkComplete fails the test unless the log has the numbers from 1 to total in order, each in a line of its own. It
// returns the number of partial entries, which the log format allows.
func (r *rotation) checkComplete(total int) (partial int) {
	r.k.Helper()
	want, text := 1, ""
	for _, f := range append(r.files, r.path) {
		data, err := os.ReadFile(f)
		r.k.ok("read the log", err)
		for line := range strings.Lines(string(data)) {
			f := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
			if len(f) != 4 || f[1] != "stdout" {
				r.k.Fatalf("log line = %q, want 4 fields, the second stdout", line)
			}
			if _, err := time.Parse(time.RFC3339Nano, f[0]); err != nil {
				r.k.Fatalf("time of line %q: %v", line, err)
			}
			if text += f[3]; f[2] == "P" {
				partial++
				continue
			}
			if text != strconv.Itoa(want) {
				r.k.Fatalf("log entry = %q, want %d", text, want)
			}
			want, text = want+1, ""
		}
	}
	if want != total+1 || text != "" {
		r.k.Errorf("log ends with %d and partial %q, want %d and none", want-1, text, total)
	}
	return partial
}
