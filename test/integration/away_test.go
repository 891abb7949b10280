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

// flood prints numbers, a thousand every twentieth of a second, until it is told to stop. Then it tells how many those
// were, and how long printing a thousand has taken at the longest, in hundredths of a second.
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

// TestDaemonAway kills the daemon and lets ten seconds go by before the next one starts. A container logs 20,000 lines
// a second all the while, the kubelet rotates the log every second, one container exits and one is killed for memory.
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
		c.Linux.Resources.MemoryLimitInBytes, c.Linux.Resources.MemorySwapLimitInBytes = 32<<20, 32<<20
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
			t.Errorf("ended while nobody looked: code %d, %s, want %d, %s", s.ExitCode, s.Reason, want.ExitCode, want.Reason)
		}
		if at := time.Unix(0, s.FinishedAt); at.Before(gone.Add(-time.Second)) || at.After(back.Add(-away/2)) {
			t.Errorf("it ended at %v, the daemon was away from %v to %v and the end was soon after", at, gone, back)
		}
	}
	k.ok("stop the writer", os.WriteFile(shm+"/stop", nil, 0o644))
	if s := k.exited(writer); s.ExitCode != 0 {
		t.Errorf("the writer: %v", s)
	}
	result, err := os.ReadFile(shm + "/result")
	k.ok("read what the writer says", err)
	var total, worst int
	_, err = fmt.Sscan(string(result), &total, &worst)
	k.ok("parse what the writer says", err)
	pieces := r.complete(total)
	t.Logf("%d lines in %d files, %d of them came in pieces; while the daemon was away %.0f lines a second; the writer "+
		"was held up %d ms at the longest",
		total, len(r.files), pieces, float64(written)/away.Seconds(), worst*10)
	if time.Duration(worst)*10*time.Millisecond > away/2 {
		t.Errorf("the writer was held up for %d ms", worst*10)
	}
	if float64(written) < 1000*away.Seconds() {
		t.Errorf("only %d lines were written while the daemon was away", written)
	}
}

// rotation rotates a container's log as the kubelet does: it renames the file and asks for a new one; when that fails
// it renames the file back and tries again the next time. So nothing is rotated while the daemon is away: the monitor,
// which has the file open, cannot be asked for another one.
type rotation struct {
	k         *kubelet
	container string
	path      string
	// files are those that were moved away, oldest first.
	files []string
	// keepRotated is a kubelet that dies before it has renamed the file back.
	keepRotated bool
}

// every rotates again and again for a while.
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

// lines counts what is in the files so far.
func (r *rotation) lines() (n int) {
	r.k.Helper()
	for _, f := range append([]string{r.path}, r.files...) {
		data, err := os.ReadFile(f)
		r.k.ok("read the log", err)
		n += strings.Count(string(data), "\n")
	}
	return n
}

// complete wants the numbers from 1 to total, each in a line of its own, in order, and returns how many came in pieces,
// as they may: the format has a tag for them.
func (r *rotation) complete(total int) (pieces int) {
	r.k.Helper()
	want, text := 1, ""
	for _, f := range append(r.files, r.path) {
		data, err := os.ReadFile(f)
		r.k.ok("read the log", err)
		for line := range strings.Lines(string(data)) {
			f := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
			if len(f) != 4 || f[1] != "stdout" {
				r.k.Fatalf("not a line of the log format: %q", line)
			}
			if _, err := time.Parse(time.RFC3339Nano, f[0]); err != nil {
				r.k.Fatalf("time of line %q: %v", line, err)
			}
			if text += f[3]; f[2] == "P" {
				pieces++
				continue
			}
			if text != strconv.Itoa(want) {
				r.k.Fatalf("where %d should be, the log has %q", want, text)
			}
			want, text = want+1, ""
		}
	}
	if want != total+1 || text != "" {
		r.k.Errorf("the log ends with %d and %q, the writer with %d", want-1, text, total)
	}
	return pieces
}
