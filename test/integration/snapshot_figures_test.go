package integration

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/podd-project/podd/test/sample"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestSnapshotFigures logs the figures of checkpoints for test/bench/RESULTS.md. Only a soak run takes the time.
func TestSnapshotFigures(t *testing.T) {
	if !soaking() {
		t.Skip("it proves nothing that other tests do not: set SOAK=1 for the figures")
	}
	k := start(t)
	for _, handler := range sample.Some(t, "runc", "gvisor") {
		for _, size := range []int{0, 200, 1024} {
			t.Run(fmt.Sprintf("%s %d MiB", handler, size), func(t *testing.T) { snapshotFigures(k.sub(t), handler, size) })
		}
		t.Run(handler+" warm start", func(t *testing.T) { warmStart(k.sub(t), handler) })
	}
}

// timed returns how long a call takes.
func timed(call func()) time.Duration {
	began := time.Now()
	call()
	return time.Since(began).Round(time.Millisecond)
}

// load is the beginning of /proc/loadavg.
func load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// snapshotFigures saves and restores a container that has so many MiB of random memory and prints a line every 10 ms:
// the longest time between two lines is that in which it was frozen.
func snapshotFigures(k *kubelet, handler string, size int) {
	cfg, dir := k.podConfig(), k.snapshotDir()
	c := &counting{kubelet: k, handler: handler, pod: k.runPod(cfg, handler), podConfig: cfg}
	const command = `(head -c %[1]d /dev/urandom; touch /tmp/ready; sleep 10000) | tail -c %[1]d &
		while sleep 0.01; do echo x; done`
	id, config := k.runIn(c.pod, cfg, []string{"sh", "-c", fmt.Sprintf(command, size<<20+1)})
	c.containers, c.configs = []string{id}, []*cri.ContainerConfig{config}
	for end := time.Now().Add(5 * time.Minute); !strings.Contains(k.exec(id, "ls /tmp"), "ready"); {
		if time.Now().After(end) {
			k.Fatal("the memory is not filled after 5 minutes")
		}
		time.Sleep(time.Second)
	}
	before := len(k.logLines(cfg, config))
	saved := timed(func() { k.ok("CheckpointPod", c.checkpoint(dir)) })
	time.Sleep(time.Second)
	var frozen time.Duration
	var last time.Time
	for _, line := range k.logLines(cfg, config)[before-1:] {
		at, err := time.Parse(time.RFC3339Nano, line.time)
		k.ok("time of a line", err)
		if !last.IsZero() {
			frozen = max(frozen, at.Sub(last))
		}
		last = at
	}
	var r *counting
	restored := timed(func() { r = c.restore(dir) })
	started := timed(r.startAll)
	k.Logf("checkpoint %v, frozen %v, RestorePod %v, StartContainer %v, load %s",
		saved, frozen.Round(time.Millisecond), restored, started, load())
}

// warmStart compares the start of a server that needs 5 s until it answers with its restore.
func warmStart(k *kubelet, handler string) {
	const server = "sleep 5; echo hello > /tmp/index.html; exec httpd -f -p 8080 -h /tmp"
	answered := func(pod string) {
		k.Helper()
		address := "http://" + k.podStatus(pod).Network.Ip + ":8080/"
		client := http.Client{Timeout: time.Second}
		k.eventually("the server answers", func() bool {
			response, err := client.Get(address)
			if err != nil {
				return false
			}
			defer response.Body.Close()
			data, err := io.ReadAll(response.Body)
			return err == nil && string(data) == "hello\n"
		})
	}
	cfg, dir := k.podConfig(), k.snapshotDir()
	c := &counting{kubelet: k, handler: handler, podConfig: cfg}
	cold := timed(func() {
		c.pod = k.runPod(cfg, handler)
		id, config := k.runIn(c.pod, cfg, []string{"sh", "-c", server})
		c.containers, c.configs = []string{id}, []*cri.ContainerConfig{config}
		answered(c.pod)
	})
	k.ok("CheckpointPod", c.checkpoint(dir))
	warm := timed(func() {
		r := c.restore(dir)
		r.startAll()
		answered(r.pod)
	})
	k.Logf("until the first answer: start %v, restore %v (%.2f), load %s",
		cold, warm, warm.Seconds()/cold.Seconds(), load())
}
